"""The screens of ``roofplan cost``: costs of chips, machines, hours and tokens, with their parts."""

from __future__ import annotations

import math

from roofplan.money import STALE_DAYS, age_days
from roofplan.money.chip import INPUT_NAMES, Bill, gross_dies, usable
from roofplan.money.comparison import against
from roofplan.money.history import CLASSES, WIDTHS, Gain, Milestone, fit_trend
from roofplan.money.machine import Owned, own, per_petaflop_hour
from roofplan.money.rent import Quote
from roofplan.money.supply import fed
from roofplan.money.tokens import Api, Supply, TokenCosts
from roofplan.money.uncertainty import Interval, Swing, central
from roofplan.present.screens.explain import trees_screen
from roofplan.present.screens.page import LETTER, Page, wrapped
from roofplan.present.screens.plans import machine_text
from roofplan.records import units
from roofplan.records.source import Source
from roofplan.records.terms import Term
from roofplan.records.units import MONTH


def usd(value: float, digits: int = 3) -> str:
    """Return an amount of money as text: ``1.52``, ``352``, ``3,296``, ``40,000``."""
    return f"{value:,.0f}" if abs(value) >= 1000 else units.significant(value, digits)


def spread(found: Interval, unit: str = "USD") -> str:
    """Return ``3,296 USD [2,827, 3,885] b``."""
    text = f"{usd(found.central)} {unit}".rstrip()
    return f"{text} {within(found)}".rstrip()


def within(found: Interval) -> str:
    """Return ``[1.2, 2.1] b ``, nothing where there is no range."""
    return "" if found.low == found.high else f"[{usd(found.low, 2)}, {usd(found.high, 2)}] {LETTER[found.grade]} "


def _swing_lines(swings: list[Swing], unit: str) -> list[str]:
    """Return the inputs whose ranges move a result most."""
    moving = [s for s in swings if s.width > 0.0][:6]
    if not moving:
        return []
    words = [f"{named(s.name)} {usd(min(s.low, s.high), 2)}..{usd(max(s.low, s.high), 2)}" for s in moving]
    return wrapped(f"  what matters      {' · '.join(words)} {unit}", indent=20)


def _line(part: Term, whole: float, unit: str = "") -> list[str]:
    """Return one row: name, value, how it comes about, whether that is a guess, share of the whole."""
    value = float(part.value)
    guess = ", a guess" if any(isinstance(one, Source) and one.guess for one in part.sources) else ""
    head = f"  {part.name:<19}{usd(value):>8}{unit}  {part.formula()}{guess}"
    return wrapped(f"{head}  {value / whole:.0%}", indent=31)


def chip_screen(bill: Bill, page: Page, *, explain: bool, depth: int) -> None:
    """Print a bill of materials: parts, interval, margin, sensitivities, and the yield by each yield law.

    Parameters
    ----------
    bill : the bill of materials.
    page : where to print.
    explain : whether to print the explanation.
    depth : levels of the explanation [1].
    """
    chip, at = bill.chip, central(bill.inputs)
    dies = " + ".join(f"{die.count} x {die.name} {die.area * 1e6:,.0f} mm2 on {die.node}" for die in chip.dies)
    memory = f" · {units.gib(chip.capacity)} GiB {chip.memory}" if chip.memory else ""
    for line in wrapped(f"{chip.name} · {dies}{memory} · {'interposer' if chip.interposer else 'card'}", indent=2):
        page.line(line)
    page.line("")
    whole = float(bill.term.value)
    for part in bill.term.parts:
        for line in _line(part, whole):
            page.line(line)
    page.line(f"  {'total':<19}{spread(bill.cost)}, nine of ten draws of the inputs' ranges")
    for die in chip.dies:
        share = float(usable(die, at))
        page.line(
            f"  {die.name}: {gross_dies(die):.1f} dies a wafer, {gross_dies(die) * share:.1f} usable ({share:.0%})"
        )
    for line in [*_margin_lines(bill), *_notes(bill), "", *_swing_lines(bill.swings, "USD")]:
        page.line(line)
    largest = max(bill.chip.dies, key=lambda die: die.area)
    yields = " · ".join(f"{name} {value:.3f}" for name, value in bill.rivals.items())
    for line in wrapped(f"  perfect {largest.name} by   {yields}", indent=20):
        page.line(line)
    if explain:
        trees_screen([(f"bill of materials {usd(whole)} USD", bill.term)], page, depth)
        return
    for line in wrapped(
        "not modelled: wafer test, binning by clock, discounts of volume · more: --explain --volume 1M --price 30000USD --json",
        indent=2,
    ):
        page.line(line)


def _notes(bill: Bill) -> list[str]:
    """Return what is absent."""
    return wrapped(f"  absent, not 0: {'; '.join(bill.absent)}", indent=4) if bill.absent else []


SCOPES = {
    "share": "its share of a board or server",
    "superchip": "the superchip around it",
    "machine": "the machine around it",
    "other card": "another card",
}
"""What a price covers where it is not that of the part alone."""


def _margin_lines(bill: Bill) -> list[str]:
    """Return the maker's margin at the newest price, and what each part carries of its design."""
    lines = []
    if bill.margin is None and bill.price is not None:
        p = bill.price
        text = f"  sold at {usd(p.value)} USD ({p.date}), the price of {SCOPES[p.scope]}: no margin of the part follows"
        lines += wrapped(text, indent=4)
    if bill.margin is not None and bill.price is not None:
        p = bill.price
        old = " !" if age_days(p.date) > STALE_DAYS else ""
        who = f", {p.provider}" if p.provider else ""
        when = "as given" if p.kind == "given" else f"{p.kind}{who}, {p.date}{old}"
        lines += wrapped(
            f"  sold at {usd(p.value)} USD ({when}): gross margin {bill.margin.central:.0%}"
            f" [{bill.margin.low:.0%}, {bill.margin.high:.0%}] {LETTER[bill.margin.grade]}, {p.value / bill.cost.central:.1f} x the bill; design, software"
            " and selling aside",
            indent=4,
        )
    if bill.design is not None:
        lines.append(f"  design and masks   {usd(bill.design)} USD each at that volume, on top")
    return lines


def named(name: str) -> str:
    """Return what an input is called on screens and pictures."""
    return INPUT_NAMES.get(name, name)


def machines_screen(found: list[Owned], page: Page, *, explain: bool, depth: int) -> None:
    """Print owned machines one below the other.

    Parameters
    ----------
    found : owned machines.
    page : where to print.
    explain : whether to print the explanation.
    depth : levels of the explanation [1].
    """
    for index, one in enumerate(found):
        if index:
            page.line("")
        machine_screen(one, page, explain=explain, depth=depth)


def machine_screen(found: Owned, page: Page, *, explain: bool, depth: int) -> None:
    """Print what owning a machine costs per hour, in parts, with what is absent, and rents for comparison."""
    for line in _purchase_lines(found):
        page.line(line)
    page.line("")
    whole = found.hourly
    for part in found.term.parts:
        for line in _line(part, whole, " USD/h"):
            page.line(line)
    for line in [*_hour(found), *_rent_lines(found), *_supply_lines(found), *_swing_lines(found.swings(), "USD/h")]:
        page.line(line)
    if explain:
        trees_screen([(f"own {usd(whole)} USD/h", found.term)], page, depth)


def _purchase_lines(found: Owned) -> list[str]:
    """Return what is bought, and what is assumed."""
    bought = " + ".join(
        f"{item.count:,.10g} x {usd(item.price)}" if item.count != 1 else usd(item.price) for item in found.items
    )
    names = " + ".join(
        f"{item.name}{f' ({item.date})' if item.date else ''}{' !' if item.stale else ''}" for item in found.items
    )
    single = len(found.items) == 1 and found.items[0].count == 1
    sum_of = "" if single else f" = {bought}"
    lines = wrapped(f"{machine_text(found.machine)}, bought for {found.purchase:,.0f} USD{sum_of}: {names}", indent=2)
    if found.assumed:
        lines += wrapped(f"assumed (flags change it): {' · '.join(found.assumed)}", indent=2)
    return lines


def _hour(found: Owned) -> list[str]:
    """Return the total of an hour with its range, what a PFLOP/s costs, and what is absent."""
    total = (
        f"  {'total':<19}{usd(found.hourly):>8} USD/h  {within(found.interval())}busy or idle{_other_interest(found)}"
    )
    lines = wrapped(total, indent=31)
    rates = per_petaflop_hour(found)
    if rates:
        text = " · ".join(f"{name} {usd(value)}" for name, value in rates.items())
        lines += wrapped(f"  {'per PFLOP/s':<19}{text} USD/h at the dense peak", indent=21)
    return lines + wrapped(f"absent, not 0: {', '.join(found.absent)}", indent=2)


def _rent_lines(found: Owned) -> list[str]:
    """Return rents of the same machine, the use from which owning is cheaper, and the time until it has paid for itself."""
    n, beside = found.machine.count, against(found)
    if beside is None:
        return []
    old = " !" if age_days(beside.date) > STALE_DAYS else ""
    lines = wrapped(
        f"rent for comparison: {usd(beside.low * n)} to {usd(beside.high * n)} USD/h = {n} x {usd(beside.low)} to {usd(beside.high)},"
        f" {beside.quotations} quotations, newest {beside.date}{old}",
        indent=2,
    )
    if beside.rent is None:
        return lines
    if beside.use is None:
        text = (
            f"against renting at {usd(beside.rent.value)} a device nothing is said, for a rent holds the machine whole and"
            " something of it has no price here"
        )
    elif beside.use >= 1.0:
        text = f"renting at {usd(beside.rent.value)} is cheaper however much it is used"
    elif beside.payback is None:
        return lines
    else:
        text = (
            f"against renting at {usd(beside.rent.value)} a device ({beside.rent.date}): owning is cheaper from {beside.use:.0%} of the"
            " hours or more, for what is absent is not in it; used or let around the clock at that rent it is paid back after"
            f" {beside.payback / MONTH:.1f} months, interest and resale aside"
        )
    return [*lines, *wrapped(text, indent=2)]


def _supply_lines(found: Owned) -> list[str]:
    """Return what a server draws against its supply and its rack, and the plugs of its cards."""
    f = fed(found)
    if f is None:
        return []
    watts = units.show(f.rack, "W")
    rack = (
        f"{f.servers} in a rack of {watts}" if f.servers else f"! more than a rack of {watts} gives and cools (--rack)"
    )
    text = f"a server draws {units.show(f.power, 'W')}: supplies of {units.show(f.supplies, 'W')} with a quarter in reserve, {rack}"
    if f.plugs:
        plugs = " or ".join(f"{count} x {units.show(plug, 'W')}" for plug, count in f.plugs.items())
        text += f"; a card of {units.show(found.machine.device.quantities['power'].value, 'W')} needs its slot's 75 W and plugs of {plugs}"
    return wrapped(text, indent=2)


def _other_interest(found: Owned) -> str:
    """Return what the total is at 8% interest where none was asked for."""
    from dataclasses import replace

    if found.terms.interest:
        return ""
    dear = own(found.machine, found.fit, replace(found.terms, interest=0.08))
    if dear is None:
        return ""
    depreciation = next(part for part in dear.term.parts if part.name == "depreciation")
    return f"; {usd(dear.hourly)} at 8% interest (depreciation {usd(float(depreciation.value))})"


SHOWN = 12
"""Quotations of a kind that are listed [1]."""


def rent_screen(quotes: list[Quote], page: Page, device: str) -> None:
    """Print the rents of a device by kind, newest first, and their range in each year.

    Parameters
    ----------
    quotes : dated rents of the device [USD/h].
    page : where to print.
    device : id of the device.
    """
    kinds = list(dict.fromkeys(q.price.kind for q in quotes))
    for kind in kinds:
        mine = [q for q in quotes if q.price.kind == kind]
        newest = max(mine, key=lambda q: q.price.middle).price.date
        values = [q.price.value for q in mine]
        page.line(
            f"{device} · {kind} · {len(mine)} quotations, {usd(min(values))} to {usd(max(values))} USD/h, newest {newest}"
        )
        for q in mine[:SHOWN]:
            p = q.price
            old = " !" if age_days(p.date) > STALE_DAYS else ""
            by = f"by {p.count}" if p.count else ""
            words = " ".join(x for x in (p.provider, p.term, by) if x)
            page.line(f"  {p.date + old:<13}{usd(p.value):>8}  {words}")
        if len(mine) > SHOWN:
            page.line(f"  and {len(mine) - SHOWN} older ones (--json)")
        for year, low, middle, high, count in _years(mine):
            bar = "█" * max(1, round(middle / max(values) * 30))
            page.line(f"    {year}  {usd(middle):>6} [{usd(low)}, {usd(high)}] of {count:<3} {bar}")
        page.line("")


def history_screen(found: list[Milestone], step: Gain, page: Page) -> None:
    """Print prices per FLOP/s and per transistor by launch date, their trends, and the comparison of two devices.

    Parameters
    ----------
    found : devices at their launch.
    step : one device compared with an older one.
    page : where to print.
    """
    page.line(f"oldest known price over dense rate, USD a TFLOP/s{'by launch':>37}")
    page.line(
        f"  {'device':<14}{'launch':<9}{'price':>9}{'32 bits':>9}{'16 bits':>9}{'8 bits':>8}{'4 bits':>8}   USD/B transistors"
    )
    for one in found:
        rates = "".join(
            f"{usd(one.per_rate[bits] * TERA, 3) if bits in one.per_rate else '-':>{width}}"
            for bits, width in zip(WIDTHS, (9, 9, 8, 8), strict=True)
        )
        each = usd(one.per_transistor * 1e9) if one.per_transistor is not None else "-"
        page.line(
            f"  {one.device.id:<14}{one.device.launched[:7]:<9}{usd(one.price.value):>9}{rates}   {each:<7} {one.price.kind}, {one.price.date}"
        )
    for kind in CLASSES:
        for bits in WIDTHS:
            trend = fit_trend(found, bits, kind)
            if trend is not None:
                years = trend.halving
                edges = (
                    f"[{years.low:.1f}, {years.high:.1f}]" if math.isfinite(years.high) else f"[{years.low:.1f}, never]"
                )
                says = (
                    f"halves in {years.central:.1f} years {edges} {LETTER[years.grade]}"
                    if math.isfinite(years.central)
                    else "does not fall"
                )
                text = f"  {kind}, {bits}: the price of a rate {says} over {trend.devices} devices, two in three within"
                for line in wrapped(f"{text} x {math.exp(trend.spread):.1f} of that", indent=4):
                    page.line(line)
    span = f" in {step.years:.1f} years" if step.years is not None else ""
    factors = " x ".join(f"{name} {usd(value)}" for name, value in step.factors.items())
    for line in wrapped(
        f"{step.old.id} to {step.new.id}: {usd(step.whole)} x the best rate{span} = {factors}; the last two are numbers that"
        " are shorter and zeros that are skipped, not more arithmetic",
        indent=2,
    ):
        page.line(line)
    page.line("what a transistor costs by process: roofplan nodes · more: --from ID --to ID --json --html FILE")


TERA = 1e12


def tokens_screen(found: TokenCosts, page: Page, *, explain: bool = False, depth: int = 2) -> None:
    """Print what a month's tokens cost at an API and on rented and owned machines, and the break-even volumes.

    Parameters
    ----------
    found : a month's tokens at an API and on rented and owned machines.
    page : where to print.
    explain : whether to print the explanation.
    depth : levels of the explanation [1].
    """
    for line in [*_demand_lines(found), *_at_full_load(found), *_verdict_lines(found)]:
        page.line(line)
    if explain:
        trees = [(f"{one.kind} {usd(float(one.term.value))} USD/month", one.term) for one in found.supplies]
        trees += [
            (f"API {usd(float(one.apart.value))} USD/Mtok against {one.kind}", one.apart)
            for one in found.supplies
            if one.apart is not None
        ]
        trees_screen(trees, page, depth)
        return
    page.line("more: --explain --utilisation 40% --peak 1.5 --api-price 0.15,0.60 --json --html FILE")


def _demand_lines(found: TokenCosts) -> list[str]:
    """Return the demand of a month, and what it costs in each way of paying."""
    d = found.demand
    total, into = units.compact(d.tokens), units.compact(d.tokens * d.share)
    curve = "around the clock" if d.peak == 1.0 else f"on average, {d.peak:g} x that at the day's peak"
    lines = [f"changes the model: {found.changes}"] if found.changes else []
    lines += wrapped(
        f"{total} tokens a month at {d.input:,.0f} in : {d.output:,.0f} out = {into} in +"
        f" {units.compact(d.tokens * (1.0 - d.share))} out, {usd(d.tokens / MONTH)} tok/s {curve}",
        indent=2,
    )
    if found.api is not None:
        lines += wrapped(f"  API  {spread(found.api.monthly, 'USD/month')}   " + _listed(found.api), indent=7)
    lines += [line for one in found.supplies for line in _month_lines(one)]
    lines += wrapped(f"  absent, not 0: {' · '.join(found.absent)}", indent=2) if found.absent else []
    return [*lines, *(_volume_lines(found) if found.others else [])]


def _volume_lines(found: TokenCosts) -> list[str]:
    """Return the monthly cost of every volume in every way of paying, the cheapest named."""
    ways = [*(["API"] if found.api else []), *dict.fromkeys(one.kind for one in found.supplies)]
    lines = [f"  {'tokens a month':<16}" + "".join(f"{way:>16}" for way in ways) + "   cheapest   USD a month"]
    for one in (found, *found.others):
        bills = {each.kind: each.monthly.central for each in one.supplies}
        bills |= {"API": one.api.monthly.central} if one.api else {}
        cells = "".join(f"{usd(bills[way]) if way in bills else '-':>16}" for way in ways)
        least = min(bills, key=lambda way: bills[way]) if bills else "-"
        lines.append(f"  {units.compact(one.demand.tokens):<16}{cells}   {least}")
    return lines


def _listed(a: Api) -> str:
    """Return what an API's price is of: the routes that are listed, or what the user gave."""
    if a.routes == 1:
        return f"{a.cheapest}: {usd(a.input)} in, {usd(a.output)} out; {a.date}"
    return f"{a.routes} routes, median {usd(a.input)} in, {usd(a.output)} out; cheapest {a.cheapest}, dearest {a.dearest}; {a.date}"


def _at_full_load(found: TokenCosts) -> list[str]:
    """Return cost by kind of token, and energy, of a machine that is always busy."""
    lines: list[str] = []
    load = "at full load" if found.demand.utilisation == 1.0 else f"at {found.demand.utilisation:.0%} of full load"
    if found.full:
        words = " · ".join(f"{name} {spread(value, '')}" for name, value in found.full.items())
        lines += wrapped(
            f"{load}, {found.paid}, USD per million tokens, split by what each adds to the steps: {words}", indent=2
        )
    if found.energy:
        kwh = spread(found.energy["kWh"], "kWh")
        grams = spread(found.energy["gCO2"], "g CO2") if "gCO2" in found.energy else ""
        text = f"energy of a million output tokens {load}, prompts included, at the machine: {kwh}"
        lines += wrapped(f"{text}, {grams}" if grams else text, indent=2)
    return lines


def _month_lines(one: Supply) -> list[str]:
    """Return a month of machines."""
    p = one.hourly.price
    old = " !" if age_days(p.date) > STALE_DAYS else ""
    count = f"{one.replicas:g} x " if one.replicas > 1 else ""
    mean = f" ({one.mean:.3g} on average)" if one.mean != one.replicas else ""
    if one.owned is not None:
        years = one.owned.terms.years
        bought = " + ".join(item.name for item in one.owned.items)
        how = f"{usd(one.owned.purchase)} USD each ({bought}, {p.date}{old}) over {years:g} years; {', '.join(one.owned.assumed)}; absent: {', '.join(one.owned.absent)}"
    else:
        who = (f", {p.provider}" if p.provider else "") + (f" by {p.count}" if p.count else "")
        how = f"730 h x {one.devices} x {usd(p.value)}{who}, {p.date}{old}"
    return wrapped(
        f"  {one.kind:<4} {spread(one.monthly, 'USD/month')}   {count}{one.machine}{mean}, {one.label}, busy {one.busy:.0%};"
        f" {usd(one.capacity.central)} tok/s out each; {how}",
        indent=7,
    )


def _verdict_lines(found: TokenCosts) -> list[str]:
    """Return where machines break even with the API, and what its price is made of beside theirs."""
    lines: list[str] = []
    if found.api is None:
        return lines
    for one in found.supplies:
        lines += _break_even_lines(one, found)
        lines += _api_price_lines(one)
        lines += _swing_lines(one.swings, f"USD/month, {one.kind}")
    return lines


LEAST_SHARE = 0.005
"""Share of draws below which none is said [1]."""


def _break_even_lines(one: Supply, found: TokenCosts) -> list[str]:
    """Return from which volume machines are cheaper than the API, and how sure that is."""
    if one.even is None or one.over is None:
        return []
    even, gives = one.even, one.capacity.central / (1.0 - found.demand.share)
    never = f", never in {even.never:.0%} of the draws" if even.never >= LEAST_SHARE else ""
    if even.tokens is None:
        often = f"; in {1.0 - even.never:.0%} of the draws it does" if even.never <= 1.0 - LEAST_SHARE else ""
        text = f"{one.kind} does not break even with {_api_name(found)}: a machine gives {usd(gives)} tok/s, too few at its price{often}"
    else:
        share = even.tokens / MONTH / gives
        text = (
            f"break even, {one.kind} against {_api_name(found)}: {units.compact(even.tokens)} tokens a month"
            f" [{units.compact(even.low)}, {units.compact(even.high)}] {LETTER[even.grade]}{never} = {usd(even.tokens / MONTH)} tok/s, {share:.0%} of what a machine gives"
        )
    return wrapped(text, indent=2)


def _api_name(found: TokenCosts) -> str:
    """Return what the API's price is called."""
    return "the median API" if found.api is not None and found.api.routes > 1 else "that API"


def _api_price_lines(one: Supply) -> list[str]:
    """Return what the API's price is made of, beside the cost of a full machine."""
    if one.apart is None or one.over is None:
        return []
    tree, over = one.apart, one.over
    parts = [f"{part.name} {usd(float(part.value))}" for part in tree.parts]
    side = "below" if over.high < 1.0 else "above" if over.low > 1.0 else "within the error of"
    return wrapped(
        f"  its {usd(float(tree.value))} USD/Mtok taken apart on {one.kind} machines: {' + '.join(parts)} ({tree.parts[-1].formula()});"
        f" {over.central:.2g} x [{over.low:.2g}, {over.high:.2g}] {LETTER[over.grade]} the cost of a full machine: {side} it",
        indent=4,
    )


def _years(quotes: list[Quote]) -> list[tuple[str, float, float, float, int]]:
    """Return least, median and most of each year's quotations."""
    import statistics

    found: dict[str, list[float]] = {}
    for q in quotes:
        found.setdefault(q.price.date[:4], []).append(q.price.value)
    return [(year, min(v), statistics.median(v), max(v), len(v)) for year, v in sorted(found.items())]
