"""`python -m kvplan`, which `torchrun -m kvplan` needs too."""

from kvplan.cli import main

if __name__ == "__main__":
    main()
