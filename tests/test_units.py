"""Quantities as people write them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofplan.errors import UnitError
from roofplan.records import units


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("80 GB", "B", 80e9),
        ("80 GiB", "B", 80 * 2**30),
        ("3.35TB/s", "B/s", 3.35e12),
        ("200 Gbit/s", "B/s", 25e9),
        ("50ms", "s", 0.05),
        ("2 h", "s", 7200),
        ("700W", "W", 700),
        ("1.4 kW", "W", 1400),
        ("2.50USD/h", "USD/h", 2.5),
        ("20 tok/s", "token/s", 20),
        ("989.4 TFLOPS", "FLOP/s", 989.4e12),
    ],
)
def test_parse(text, unit, value):
    assert units.parse(text, unit) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("80", "B"),
        ("80 GB/s", "B"),
        ("-1 W", "W"),
        ("0 s", "s"),
        ("nan s", "s"),
        ("inf W", "W"),
        ("", "s"),
        ("ms 50", "s"),
        ("5 parsecs", "s"),
    ],
)
def test_what_does_not_parse_is_refused(text, unit):
    with pytest.raises(UnitError):
        units.parse(text, unit, "--flag")


def test_lengths_are_binary_and_amounts_decimal():
    assert units.parse_length("128k") == 131_072
    assert units.parse_amount("2T") == 2e12
    for bad in ("0", "1.5", "-8k", "8q", "nan"):
        with pytest.raises(UnitError):
            units.parse_length(bad)


@given(st.floats(min_value=1e-6, max_value=1e15))
def test_three_digits_stay_within_half_a_percent(value):
    shown = float(units.significant(value).replace(",", ""))
    assert math.isclose(shown, value, rel_tol=6e-3)


@given(st.floats(min_value=1e-9, max_value=1e17), st.sampled_from(["B", "B/s", "FLOP/s", "W", "J"]))
def test_what_is_shown_can_be_read_back(value, unit):
    assert units.parse(units.show(value, unit, 12), unit) == pytest.approx(value, rel=1e-6) if value >= 1 else True


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1.0, "1.00"),
        (10.0, "10.0"),
        (100.0, "100"),
        (1000.0, "1,000"),
        (0.1, "0.100"),
        (0.001, "0.00100"),
        (9.996, "10.0"),
    ],
)
def test_powers_of_ten_have_as_many_digits_as_others(value, shown):
    assert units.significant(value) == shown


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("$20/h", "USD/h", 20.0),
        ("$ 2.50/h", "USD/h", 2.5),
        ("4weeks", "s", 28 * 86400.0),
        ("30 days", "s", 30 * 86400.0),
    ],
)
def test_money_and_time_as_people_write_them(text, unit, value):
    assert units.parse(text, unit) == value


def test_amounts_in_small_letters():
    assert (units.parse_amount("1t", "--tokens"), units.parse_amount("2b", "--tokens")) == (1e12, 2e9)


WORTH = {
    "B": "1B 1e3:kB 1e6:MB 1e9:GB 1e12:TB 1e15:PB 1024:KiB 1048576:MiB 1073741824:GiB 1099511627776:TiB",
    "B/s": "1:B/s 1e9:GB/s 1e12:TB/s 1073741824:GiB/s 0.125:bit/s 125e6:Gbit/s 125e6:Gb/s 125e6:Gbps 125e3:Mbps 125:kbit/s",
    "FLOP/s": "1:FLOPS 1e12:TFLOPS 1e15:PFLOPS 1e12:TFLOP/s 1e9:GFLOP/s 1e12:TOPS 1e12:TOP/s",
    "FLOP": "1e9:GFLOP 1e12:TFLOP 1e12:TOP",
    "s": "1:s 1e-3:ms 1e-6:us 1e-6:µs 1e-9:ns 60:min 60:m 60:minutes 3600:h 3600:hour 3600:hours 86400:d 86400:day 86400:days "
    "604800:week 604800:weeks 2628000:month 2628000:months 31536000:year 31536000:years",
    "W": "1:W 1e3:kW 1e6:MW 1e-3:mW",
    "J": "1:J 3600:Wh 3.6e6:kWh 3.6e9:MWh",
    "Hz": "1:Hz 1e6:MHz 1e9:GHz",
    "USD": "1:USD 1:$ 1e3:kUSD 1e6:MUSD",
    "USD/h": "1:USD/h 1:$/h 1e3:kUSD/h 0.00136986301369863:USD/month",
    "USD/kWh": "1:USD/kWh 1:$/kWh",
    "token/s": "1:tok/s 1:token/s 1:tokens/s 1:t/s 1:tps",
    "request/s": "1:rps 1:req/s 1:request/s 1:requests/s 0.016666666666666666:req/min 0.0002777777777777778:req/h 1.1574074074074073e-05:req/day",
    "m": "1e-3:mm 1e-2:cm 1:m",
    "m2": "1e-6:mm2 1e-4:cm2 1:m2",
    "1/m2": "1e4:1/cm2 1:1/m2 1e12:MTr/mm2",
    "USD/B": "1e-9:USD/GB 9.313225746154785e-10:USD/GiB 1:USD/B",
    "USD/m2": "1e6:USD/mm2 1:USD/m2",
    "1": "0.01:% 1:x 1:SM 1:CU 1:core 1:cores 1:device 1:devices",
}
"""Spellings by unit with what each is worth, by the definitions of SI, IEC 80000-13 and a year of 365 days."""


@pytest.mark.parametrize("unit", WORTH)
def test_every_spelling_is_worth_what_it_says(unit):
    for said in WORTH[unit].split():
        worth, _, spelling = said.rpartition(":")
        worth, spelling = (worth, spelling) if worth else (said[0], said[1:])
        assert units.UNITS[unit][spelling] == pytest.approx(float(worth), rel=1e-12), spelling
        assert units.parse(f"2 {spelling}", unit) == pytest.approx(2 * float(worth), rel=1e-12)
    assert units.UNITS.keys() == WORTH.keys()


@given(st.floats(1e-9, 1e12), st.integers(1, 6))
def test_limits_keep_their_side_and_their_digits(value, digits):
    up, down = units.at_least(value, digits), units.at_most(value, digits)
    assert down <= value * (1 + 1e-9)
    assert up >= value * (1 - 1e-9)
    assert up - down <= 10.0 ** (math.floor(math.log10(value)) - digits + 1) * 1.01
    assert float(f"{up:.{digits}g}") == up


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (2 * 86_400, "2.00 days"),
        (2 * 86_400 - 60, "48.0 h"),
        (2 * 3600, "2.00 h"),
        (2 * 3600 - 1, "7,199 s"),
        (-3 * 86_400, "-3.00 days"),
        (1.0, "1.00 s"),
        (0.999, "999 ms"),
        (2e-6, "2.00 us"),
        (5e-9, "5.00 ns"),
    ],
)
def test_spans_are_days_and_hours_from_two_on(seconds, shown):
    assert units.show(seconds, "s") == shown


@pytest.mark.parametrize("text", ["2,50 ms", "50,5ms", "1,5s", "10,00ms", "1,0000ms", "1234,567ms"])
def test_a_decimal_comma_is_refused(text):
    with pytest.raises(UnitError, match="commas stand between groups of three digits"):
        units.parse(text, "s", "--tpot")
    assert units.parse("1,234.5 ms", "s") == pytest.approx(1.2345)
