"""Reports: one HTML file that opens from disk and makes no request.

D3 and Observable Plot draw the charts; their two files come with the package. Unlike Vega-Lite, Plot draws SVG in the
colours of the style sheet, does not evaluate text as code, and is smaller (490 kB against 832 kB). All numbers are
computed in Python: the scripts look them up.
"""

from openauc.report.classifier import classifier_report
from openauc.report.groups import groups_report
from openauc.report.monitor import monitor_report
from openauc.report.predictions import predictions_report
from openauc.report.store import store_report, write_report

__all__ = ["classifier_report", "groups_report", "monitor_report", "predictions_report", "store_report", "write_report"]
