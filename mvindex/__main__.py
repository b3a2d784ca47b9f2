"""`python -m mvindex` is the program mvindex, for where the script is not on the path."""

from mvindex.cli import main

if __name__ == "__main__":
    main()
