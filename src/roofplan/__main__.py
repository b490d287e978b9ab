"""Entry point: ``python -m roofplan``."""

from roofplan.cli import main

if __name__ == "__main__":
    main()
