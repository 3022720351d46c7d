"""Uploads a preset to Hugging Face: `keras-attn upload PRESET hf://USER/NAME`.

Its files go there, with the card and, of a run, the report, and nothing else of the folder. A truncated or changed
preset is refused first. The Hub asks for a token with the right to write: `hf auth login`, or `HF_TOKEN`.
"""

import argparse

from keras_attn.cli import command


def main(argv=None) -> int:
    parser = command.Parser("keras-attn upload", description=__doc__)
    command.add_run(parser, "PRESET", help="a registered preset, or its or a run's folder")
    parser.add_argument("address", metavar="hf://USER/NAME", help="or hf://USER/NAME@BRANCH")
    parser.add_argument("--private", action="store_true", help="make a new repository private")
    return command.run(upload_preset, parser, argv)


def upload_preset(arguments: argparse.Namespace) -> None:
    from keras_attn.saving import load_preset, upload

    with command.quietly():
        load_preset(arguments.run)
    print(f"The preset is at {upload(arguments.run, arguments.address, private=arguments.private)}.")
