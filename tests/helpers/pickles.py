"""Pickles as DPR writes them, by old and new NumPy and Python 2, and pickles that would run something.

Of each hostile one it is said what it names. Where it calls something, that would make the file `marker`.
"""

import builtins
import functools
import io
import os
import pickle  # noqa: TID251 - the test must write what nobody should read
import pickletools
import subprocess

import numpy as np


class Calls:
    """Pickled as a call of the function with the arguments."""

    def __init__(self, function, *arguments):
        self._call = (function, arguments)

    def __reduce__(self):
        return self._call


class Mine:
    """A class of whoever made the file, which would be given its state."""


class Vector(np.ndarray):
    """An array of another class."""


def pairs(count=3, dim=4, prefix="wiki:", dtype="f4"):
    vectors = np.random.default_rng(7).standard_normal((count, dim)).astype(dtype)
    return [(f"{prefix}{number}", vector) for number, vector in enumerate(vectors, start=1)]


def as_old_numpy(data, protocol):
    """The same pickle as NumPy before 2 wrote it: its modules were called numpy.core."""
    if protocol < 4:
        return data.replace(b"numpy._core", b"numpy.core")
    out = io.BytesIO()
    out.write(b"\x80" + bytes([protocol]))
    for code, argument, position in pickletools.genops(data):
        end = _end(data, position)
        if code.name == "SHORT_BINUNICODE" and argument.startswith("numpy._core"):
            name = argument.replace("numpy._core", "numpy.core").encode()
            out.write(b"\x8c" + bytes([len(name)]) + name)
        elif code.name not in ("PROTO", "FRAME"):
            out.write(data[position:end])
    return out.getvalue()


def _end(data, position):
    return next((at for _, _, at in pickletools.genops(data) if at > position), len(data))


def by_python_2(vectors):
    """The pickle of protocol 2 that Python 2 wrote: strings and bytes are one type, by the opcode SHORT_BINSTRING."""

    def string(raw):
        return b"U" + bytes([len(raw)]) + raw

    out = b"\x80\x02]("
    for number, vector in enumerate(vectors, start=1):
        out += string(b"wiki:%d" % number)
        out += b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85" + string(b"b") + b"tR("
        out += b"K\x01K" + bytes([len(vector)]) + b"\x85cnumpy\ndtype\n(" + string(b"f4") + b"K\x00K\x01tR("
        out += b"K\x03" + string(b"<") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
        out += string(vector.astype("<f4").tobytes()) + b"tb\x86"
    return out + b"e."


def calls(marker):
    """Pickles that run something wherever they are unpickled, by what they name."""
    touch = f"touch {marker}"
    make = f"open({str(marker)!r}, 'w').close()"
    gadgets = {
        "posix.system": Calls(os.system, touch),
        "posix.popen-like subprocess.Popen": Calls(subprocess.Popen, ["touch", str(marker)]),
        "subprocess.call": Calls(subprocess.call, touch.split()),
        "builtins.eval": Calls(eval, f"__import__('os').system({touch!r})"),
        "builtins.exec": Calls(exec, make),
        "builtins.getattr": Calls(builtins.getattr, "{}", "format"),
        "builtins.open": Calls(open, str(marker), "w"),
        "builtins.__import__": Calls(__import__, "antigravity"),
        "functools.partial": Calls(functools.partial, os.system, touch),
        "numpy.save": Calls(np.save, str(marker), 1),
        "numpy.load": Calls(np.load, str(marker)),
        "numpy.memmap": Calls(np.memmap, str(marker), "u1", "w+", 0, (1,)),
        "io.open_code": Calls(io.open_code, str(marker)),
        "a class": Mine(),
    }
    files = {name: pickle.dumps([("1", gadget)]) for name, gadget in gadgets.items()}
    files["before the list"] = b"(" + _body(pickle.dumps(gadgets["posix.system"], protocol=2)) + b"1]."
    files["as an id"] = pickle.dumps([(gadgets["posix.system"], np.zeros(2, dtype="f4"))])
    files["inside an array of objects"] = pickle.dumps([("1", np.array([gadgets["posix.system"]], dtype=object))])
    quoted = repr(touch).encode()
    files["protocol 0"] = b"cos\nsystem\n(S" + quoted + b"\ntR."
    files["opcode INST"] = b"(S" + quoted + b"\nios\nsystem\n."
    files["opcode OBJ"] = b"(cos\nsystem\nS" + quoted + b"\no."
    files["opcode STACK_GLOBAL"] = (
        b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c" + bytes([len(touch)]) + touch.encode() + b"\x85R."
    )
    files["opcode NEWOBJ"] = b"\x80\x02csubprocess\nPopen\n(S" + quoted + b"\nt\x81."
    files["a name with dots"] = b"\x80\x04\x8c\x05numpy\x8c\x11ndarray.__class__\x93."
    files["by a module that would be imported"] = b"cantigravity\nfly\n."
    files["an array of another class"] = pickle.dumps([("1", np.zeros(2, dtype="f4").view(Vector))])
    files["a state for NumPy's dtype"] = b"\x80\x02cnumpy\ndtype\n(K\x03cos\nsystem\ntb."
    files["a call of what was made"] = b"cnumpy\ndtype\n(U\x02f4\x89\x88tR)R."
    return files


def breaks(good):
    """Pickles that run nothing and would break a reader that trusts them."""
    big = pairs(dtype=">f4")
    dtype, reconstruct = b"cnumpy\ndtype\n", b"cnumpy.core.multiarray\n_reconstruct\n"
    deep = b"]" * 200_000 + b"a" * 199_999 + b"."
    laughs = b"]" + b"".join(b"q%c(h%c" % (n, n) + b"h%c" % n * 9 + b"e](h%ce" % n for n in range(1, 9)) + b"."
    return {
        "cut short": good[: len(good) * 2 // 3],
        "cut at its last byte": good[:-1],
        "trailing bytes": good + b"\n",
        "a second pickle": good + pickle.dumps(1),
        "empty": b"",
        "no pickle": b"id\tvector\n1\t0.5\n",
        "bytes of 2^62": b"\x80\x04\x8e" + (1 << 62).to_bytes(8, "little") + b"x",
        "a byte array of 2^40": b"\x80\x05\x96" + (1 << 40).to_bytes(8, "little") + b"x",
        "a byte array cut short": pickle.dumps(pairs(3), protocol=5)[:-60],
        "a number too large for its place": b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\xff].",
        "a frame that ends inside of an opcode": b"\x80\x04\x95\x03\0\0\0\0\0\0\0](J\xff\xff\xff\x7fe.",
        "a frame inside of a frame": b"\x80\x04\x95\x0c\0\0\0\0\0\0\0]\x95\1\0\0\0\0\0\0\0(e.",
        "a memo of 2^31, with a gap": b"](K\1q\0r\xff\xff\xff\x7fe.",
        "a call of a text": b"]\x8c\2f4)Ra.",
        "the state of a list": b"](NNtb.",
        "the state of a name": b"]cnumpy\nndarray\n(NNtba.",
        "items of a name": b"]cnumpy\nndarray\n(K\1ea.",
        "items of a byte array": b"]\x96\1\0\0\0\0\0\0\0x(K\1ea.",
        "the list inside of itself": b"]q\0h\0a.",
        "a list of the list, twice": b"]q\0(h\0h\0e.",
        "a memo of 2^32": b"](K\1r\xff\xff\xff\xffe.",
        "nested 200,000 deep": deep,
        "a billion laughs": laughs,
        "a persistent id": b"P1\n.",
        "an extension": b"\x82\x01.",
        "out-of-band bytes": b"\x80\x05\x97.",
        "an array of objects": pickle.dumps([("1", np.array([None, "x"], dtype=object))]),
        "an array of strings": pickle.dumps([("1", np.array(["ab"]))]),
        "an array of records": pickle.dumps([("1", np.zeros(2, dtype=[("a", "f4")]))]),
        "an array of whole numbers": pickle.dumps([("1", np.arange(4))]),
        "a matrix": pickle.dumps([("1", np.zeros((2, 2), dtype="f4"))]),
        "an array of no dims": pickle.dumps([("1", np.float32(1))]),
        "vectors of two lengths": pickle.dumps([("1", np.zeros(2, "f4")), ("2", np.zeros(3, "f4"))]),
        "vectors of two types": pickle.dumps([("1", np.zeros(2, "f4")), ("2", np.zeros(2, "f8"))]),
        "a dict": pickle.dumps({"1": np.zeros(2, "f4")}),
        "no pairs": pickle.dumps([1, 2]),
        "an id that is a list": pickle.dumps([(["1"], np.zeros(2, "f4"))]),
        "an id that is a huge number": pickle.dumps([(1 << 100_000, np.zeros(2, "f4"))]),
        "an id that is no UTF-8": pickle.dumps([(b"\xff", np.zeros(2, "f4"))]),
        "a shape that lies": b"](U\x011" + _array(reconstruct, dtype, b"J\x00\xca\x9a;\x85", b"C\x04abcd") + b"\x86e.",
        "a negative shape": b"](U\x011"
        + _array(reconstruct, dtype, b"J\xff\xff\xff\xff\x85", b"C\x04abcd")
        + b"\x86e.",
        "bytes that are a text": b"](U\x011"
        + _array(reconstruct, dtype, b"K\x01\x85", b"X\x04\x00\x00\x00abcd")
        + b"\x86e.",
        "a dtype without a state": b"](U\x011" + dtype + b"(U\x02f4\x89\x88tRNb\x86e.",
        "a dtype that is no copy": pickle.dumps(big, protocol=4).replace(b"f4\x94\x89\x88", b"f4\x94\x89\x89"),
        "a dtype of another size": pickle.dumps(big, protocol=2).replace(b"NNNJ\xff", b"NNNJ\x08"),
        "a string of another size": pickle.dumps([(np.str_("ab"), big[0][1])], protocol=4).replace(
            b"NNNK\x08", b"NNNK\x7f"
        ),
        "another codec": b"c_codecs\nencode\n(X\x01\x00\x00\x00xU\x05rot13tR.",
        "ndarray called": b"cnumpy\nndarray\n(K\x04tR.",
    }


def _array(reconstruct, dtype, shape, raw):
    made = reconstruct + b"(cnumpy\nndarray\nK\x00\x85U\x01btR"
    return made + b"(K\x01" + shape + dtype + b"(U\x02f4\x89\x88tR\x89" + raw + b"tb"


def _body(data):
    """The opcodes between the header of protocol 2 and the final STOP."""
    return data[2:-1]
