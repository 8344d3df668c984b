"""A fuzzer for the rewrites: random graphs on which rules fire often, run before and after `optimize`.

generate.py makes a graph from a seed, one node after the other, each run in onnxruntime as it is made (builder.py), out
of moves (moves_*.py); check.py says what must hold, differ.py of the numbers, draws.py on which inputs; shrink.py
makes a failing graph small.
`python -m tests.fuzz --seed 7` looks at one graph, `--count 1000` at so many.
"""

from onnxfuse import patterns

patterns.survive_errors = False  # an error inside a rule is a finding
