"""`python -m tools.docs`: write the documentation that is made from the code."""

import sys

from tools.docs import write

if __name__ == "__main__":
    write(lambda line: sys.stdout.write(f"{line}\n"))
