"""Networks: images in, features out, with the key names of the published weights."""

from openauc.models.backbones import BACKBONES, LoadReport, load_weights, make_backbone
from openauc.models.base import Backbone, branch, clean_statistics

__all__ = ["BACKBONES", "Backbone", "LoadReport", "branch", "clean_statistics", "load_weights", "make_backbone"]
