"""``python -m openauc``, which is how ``accelerate launch -m openauc train ...`` starts it."""

from openauc.cli import main

main()
