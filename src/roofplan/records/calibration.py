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
    scope : what it is looked up under: an architecture, a device, an engine version, or ``any``.
    basis : what it was fitted on where that is another scope, as of one that a user's runs moved.
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
    basis: str = ""

    @property
    def fitted_on(self) -> str:
        """The scope that it was fitted on."""
        return self.basis or self.scope
