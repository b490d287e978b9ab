"""Fitted constants: what a law needs beside data sheets, with the rows it was fitted on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """One fitted number of one law.

    Parameters
    ----------
    law : name of the law that uses it.
    name : its symbol there.
    scope : what it was fitted on: an architecture, a device, an engine version, or ``any``.
    value : in the law's unit.
    spread : robust relative spread of the residuals, one standard deviation [1].
    rows : measurements used [1].
    fitted : ISO date of the fit.
    source : where the rows are from.
    """

    law: str
    name: str
    scope: str
    value: float
    unit: str
    spread: float
    rows: int
    fitted: str
    source: str
    note: str = ""
