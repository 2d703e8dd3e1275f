"""`python -m kvstrata`: the `kvstrata` command."""

from ._command import main

if __name__ == "__main__":
    main()
