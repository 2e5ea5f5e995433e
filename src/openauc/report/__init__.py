"""Reports: one HTML file that opens from disk and needs no network, from predictions or from a store of trials.

Charts are drawn by Observable Plot on D3, whose two files come with the package. Vega-Lite was the other candidate.
Plot was preferred because it draws SVG in colours of the page's style sheet, so that dark mode and print are matters of
style rather than of drawing again; because it draws without evaluating text as code, which Vega does unless told
otherwise, so that the page can forbid every script but its own; and because it is
smaller (490 kB against 832 kB for Vega, Vega-Lite and Vega-Embed).

All numbers are computed here in Python. The scripts look them up, and never derive a metric.
"""

from openauc.report.classifier import classifier_report
from openauc.report.monitor import monitor_report
from openauc.report.predictions import predictions_report
from openauc.report.store import store_report, write_report

__all__ = ["classifier_report", "monitor_report", "predictions_report", "store_report", "write_report"]
