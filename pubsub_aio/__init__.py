"""Google Pub/Sub for asyncio.

Names are loaded when first used: importing this package costs nothing, so that the emulator and
the command line start in a blink.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
