"""The process: the script `kvplan`, and `python -m kvplan`, which `torchrun -m kvplan` needs too."""

import gc

# What a start makes stays until the end: to look for cycles among it, again and again, costs a tenth of its time.
gc.set_threshold(100_000, 50, 50)

from kvplan.cli import main  # noqa: E402

if __name__ == "__main__":
    main()
