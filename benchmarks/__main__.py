"""`python -m benchmarks [--quick]`: one benchmark after the other."""

import argparse

from benchmarks import depth_module, distribution, end_to_end, plots, scaling


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__.split(":", 1)[1])
    parser.add_argument("--quick", action="store_true", help="few sizes and rounds, for a first look")
    arguments = ["--quick"] if parser.parse_args().quick else []
    for benchmark in (depth_module, end_to_end, distribution, scaling):
        benchmark.main(arguments)
    plots.main(arguments)


if __name__ == "__main__":
    main()
