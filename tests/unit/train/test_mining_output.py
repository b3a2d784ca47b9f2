"""The output of a mining run that is broken off and goes on."""

import pytest

from mvindex.errors import ConfigError
from mvindex_train.negatives.output import ResumableOutput


class TestResumableOutput:
    """A part, its state, and what may go on with it."""

    SETTINGS = {"seed": 0, "depth": 200}

    def begin(self, path, num_batches, settings=SETTINGS, **options):
        """Write so many batches and stop as if killed: without an end."""
        with ResumableOutput(path, settings, **options) as output:
            first = output.finished
            for number in range(first, num_batches):
                output.add([b"%d\n" % number], 1, {"negatives": number + 1})
            return first, dict(output.counts)

    def test_goes_on_after_the_last_batch_and_drops_what_follows_it(self, tmp_path):
        path = tmp_path / "out.jsonl"
        self.begin(path, 2)
        with (tmp_path / "out.jsonl.part").open("ab") as file:
            file.write(b"half a li")
        assert self.begin(path, 3) == (2, {"negatives": 3})
        assert (tmp_path / "out.jsonl.part").read_bytes() == b"0\n1\n2\n"

    def test_the_end_leaves_the_file_alone(self, tmp_path):
        path = tmp_path / "out.jsonl"
        with ResumableOutput(path, self.SETTINGS) as output:
            output.work_folder.mkdir()
            output.add([b"row\n"], 1, {})
            output.finish()
        assert [entry.name for entry in tmp_path.iterdir()] == ["out.jsonl"]
        assert path.read_bytes() == b"row\n"

    def test_other_settings_are_named_and_force_begins_anew(self, tmp_path):
        path = tmp_path / "out.jsonl"
        self.begin(path, 2)
        with pytest.raises(ConfigError, match="expected a run with depth 100, got 200. .*--force"):
            self.begin(path, 3, {"seed": 0, "depth": 100})
        assert self.begin(path, 2) == (2, {"negatives": 2})
        assert self.begin(path, 1, {"seed": 0, "depth": 100}, force=True) == (0, {"negatives": 1})

    def test_force_goes_on_with_equal_settings(self, tmp_path):
        self.begin(tmp_path / "out.jsonl", 2)
        assert self.begin(tmp_path / "out.jsonl", 2, force=True) == (2, {"negatives": 2})

    def test_an_output_or_a_foreign_part_is_not_overwritten(self, tmp_path):
        path, part = tmp_path / "out.jsonl", tmp_path / "other.jsonl.part"
        path.write_text("mine", encoding="utf-8")
        part.write_text("someone's", encoding="utf-8")
        with pytest.raises(ConfigError, match="exists already. Choose another name"):
            self.begin(path, 1)
        with pytest.raises(ConfigError, match="is not its state"):
            self.begin(tmp_path / "other.jsonl", 1)
        assert (path.read_text(encoding="utf-8"), part.read_text(encoding="utf-8")) == ("mine", "someone's")

    def test_two_writers_exclude_each_other(self, tmp_path):
        path = tmp_path / "out.jsonl"
        with ResumableOutput(path, self.SETTINGS), pytest.raises(ConfigError, match="another process is writing"):
            self.begin(path, 1)

    def test_a_folder_that_is_not_there_is_named(self, tmp_path):
        with pytest.raises(ConfigError, match="nowhere.*cannot be written"):
            self.begin(tmp_path / "nowhere" / "out.jsonl", 1)
