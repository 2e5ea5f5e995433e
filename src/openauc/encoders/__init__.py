"""Pretrained encoders by name: texts or images in, features out."""

from openauc.encoders.base import Encoder
from openauc.encoders.registry import ENCODERS, get_encoder

__all__ = ["ENCODERS", "Encoder", "get_encoder"]
