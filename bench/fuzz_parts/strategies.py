"""A target's inputs as a Hypothesis strategy: its seeds and what the mutator makes of them."""

from hypothesis import strategies as st

from fuzz_parts.mutating import mutate


@st.composite
def mutated(draw, target):
    seeds = target.seeds()

    def below(limit):
        return draw(st.integers(0, limit - 1))

    data = seeds[below(len(seeds))]
    return mutate(data, seeds, target.tokens, below) if below(8) else data
