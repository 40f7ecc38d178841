"""Runs the program: python -m bringupd ARGUMENTS is bringupd ARGUMENTS."""

import os
import sys

from bringupd import find_program
from bringupd._errors import Error

if __name__ == "__main__":
    try:
        program = find_program()
    except Error as error:
        sys.exit(f"bringupd: {error}")
    os.execv(program, [program, *sys.argv[1:]])
