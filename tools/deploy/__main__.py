"""`python -m tools.deploy`: write the files of deploy/ that are made from the registry of daemons."""

import sys

from tools.deploy import write

if __name__ == "__main__":
    write(lambda line: sys.stdout.write(f"{line}\n"))
