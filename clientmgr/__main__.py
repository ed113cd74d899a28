"""`python -m clientmgr …`: the command line, for whoever knows the interpreter and not where its scripts are."""

from clientmgr.cli import main

if __name__ == "__main__":
    main()
