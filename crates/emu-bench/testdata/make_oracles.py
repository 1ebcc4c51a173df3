#!/usr/bin/env python3
"""Writes oracles.json: reference values for the statistics of emu-bench.

Run in an environment with scipy and statsmodels; the versions used are in the file:
    python3 -m venv venv && venv/bin/pip install scipy statsmodels && venv/bin/python make_oracles.py
"""

import json
import math
import pathlib

import numpy as np
import scipy
import statsmodels
import statsmodels.api as sm
from scipy import stats
from statsmodels.stats.proportion import proportion_confint
from statsmodels.stats.weightstats import DescrStatsW

LEVELS = [0.8, 0.9, 0.95, 0.99, 0.999]
POWER = 0.8
RNG = np.random.default_rng(20111)


def t_critical(level, df):
    return stats.t.isf((1 - level) / 2, df)


def t_criticals():
    dfs = [1, 1.7, 2, 3, 4.25, 5, 9, 11, 24, 39, 99, 999, 5000, 10000, 20000, 1e6]
    return [(level, df, t_critical(level, df)) for level in LEVELS + [0.6, 0.99995] for df in dfs]


def t_two_sided():
    dfs = [1, 1.7, 2, 5, 9, 38, 100, 1000, 10000]
    return [(t, df, 2 * stats.t.sf(abs(t), df)) for t in [0.0, 0.01, -0.7, 1.0, 2.1, -4.24, 12.0, 40.0] for df in dfs]


def f_upper_tail():
    cases = [(0.02, 1, 1), (1.0, 1, 9), (17.99, 1, 9), (3.5, 2, 12), (0.4, 5, 30), (4.2, 3, 38), (80.0, 1, 38),
             (900.0, 1, 38), (2.5, 7, 1000), (150.0, 4, 4)]
    return [(f, df1, df2, stats.f.sf(f, df1, df2)) for f, df1, df2 in cases]


def normal_quantiles():
    shares = [1e-6, 0.0005, 0.01, 0.025, 0.1, 0.3, 0.6, 0.8, 0.975, 0.9995, 0.999999]
    return [(share, stats.norm.ppf(share)) for share in shares]


def samples():
    sets = [
        [2.5, 4.0],
        [1.0, 2.0, 3.0, 4.0, 5.0],
        [3.2, -1.5, 0.0, 8.25, 8.25, -20.0, 7.125],
        list(RNG.lognormal(0, 0.5, 30)),
        list(1e9 + RNG.normal(0, 2, 25)),
        list(1e-12 * RNG.gamma(2, 3, 41)),
    ]
    return [
        {
            "values": values,
            "mean": np.mean(values),
            "sd": np.std(values, ddof=1),
            "cv": np.std(values, ddof=1) / abs(np.mean(values)),
            "median": np.median(values),
            "mad": stats.median_abs_deviation(values),
            "quantiles": [(q, np.quantile(values, q, method="linear")) for q in [0, 0.025, 0.25, 0.4, 0.75, 0.99, 1]],
            "mean_intervals": [
                (level, *stats.t.interval(level, len(values) - 1, np.mean(values), stats.sem(values)))
                for level in LEVELS
            ],
        }
        for values in sets
    ]


def median_ranks():
    """The narrowest symmetric pair of order statistics whose exact coverage reaches the level, else the range."""
    rows = []
    for n in range(1, 61):
        for level in LEVELS:
            reaching = [k for k in range(1, n // 2 + 1) if 1 - 2 * stats.binom.cdf(k - 1, n, 0.5) >= level]
            rank = max(reaching, default=1)
            rows.append((n, level, rank, 1 - 2 * stats.binom.cdf(rank - 1, n, 0.5)))
    return rows


def shares():
    cases = [(0, 1), (0, 200), (1, 5), (5, 5), (7, 200), (10, 200), (100, 200), (1999, 2000)]
    return [
        (successes, trials, level, *proportion_confint(successes, trials, alpha=1 - level, method="wilson"))
        for successes, trials in cases
        for level in LEVELS
    ]


def paired():
    cases = []
    for n, ratio, noise in [(2, 0.5, 0.01), (8, 0.25, 0.05), (40, 1.0, 0.02), (12, 3.0, 0.5)]:
        native = RNG.uniform(50, 200, n)
        emulated = native * ratio * np.exp(RNG.normal(0, noise, n))
        logs = np.log(emulated / native)
        low, high = DescrStatsW(logs).tconfint_mean(alpha=0.05)
        cases.append({
            "pairs": list(zip(emulated.tolist(), native.tolist())),
            "ratio": stats.gmean(emulated / native),
            "low": math.exp(low),
            "high": math.exp(high),
        })
    return cases


def coefficient(fit, index, unit=1.0):
    low, high = fit.conf_int(alpha=0.05)[index]
    return {
        "estimate": fit.params[index] * unit,
        "standard_error": fit.bse[index] * unit,
        "t": fit.tvalues[index],
        "p": fit.pvalues[index],
        "low": low * unit,
        "high": high * unit,
    }


def regression(name, x, y, x_unit=1.0, y_unit=1.0):
    """The fit in the given units; powers of two, so that the change of units is exact."""
    x, y = np.asarray(x, float), np.asarray(y, float)
    fit = sm.OLS(y, sm.add_constant(x)).fit()
    origin = sm.OLS(y, x).fit()
    return {
        "name": name,
        "x": (x * x_unit).tolist(),
        "y": (y * y_unit).tolist(),
        "intercept": coefficient(fit, 0, y_unit),
        "slope": coefficient(fit, 1, y_unit / x_unit),
        "origin": coefficient(origin, 0, y_unit / x_unit),
        "r_squared": fit.rsquared,
        "residual_sd": math.sqrt(fit.mse_resid) * y_unit,
        "f": fit.fvalue,
        "f_p": fit.f_pvalue,
    }


def regressions():
    x123 = [10, 8, 13, 9, 11, 14, 6, 4, 12, 7, 5]
    anscombe = [
        (x123, [8.04, 6.95, 7.58, 8.81, 8.33, 9.96, 7.24, 4.26, 10.84, 4.82, 5.68]),
        (x123, [9.14, 8.14, 8.74, 8.77, 9.26, 8.10, 6.13, 3.10, 9.13, 7.26, 4.74]),
        (x123, [7.46, 6.77, 12.74, 7.11, 7.81, 8.84, 6.08, 5.39, 8.15, 6.42, 5.73]),
        ([8, 8, 8, 8, 8, 8, 8, 19, 8, 8, 8], [6.58, 5.76, 7.71, 8.84, 8.47, 7.04, 5.25, 12.50, 5.56, 7.91, 6.89]),
    ]
    cases = [regression(f"anscombe {i + 1}", x, y) for i, (x, y) in enumerate(anscombe)]
    quotas = np.arange(1, 41) / 10
    cases.append(regression("dead quota", quotas, -3.081 + 23.4 * quotas + RNG.normal(0, 0.5, 40)))
    cases.append(regression("flat", quotas, 5 + RNG.normal(0, 0.1, 40)))
    cases.append(regression("three points", [1, 2, 4], [1.1, 1.9, 4.2]))
    x, y = RNG.uniform(0.5, 3.5, 20), RNG.normal(0, 0.1, 20)
    cases.append(regression("hertz and seconds", x, 4 - x + y, x_unit=2.0**30, y_unit=2.0**-60))
    return cases


def equivalence():
    cases = []
    for _ in range(60):
        n = int(RNG.integers(3, 30))
        logs = RNG.normal(RNG.choice([0, 0.02, 0.04, -0.03, 0.1]), RNG.choice([0.005, 0.02, 0.06]), n)
        p = DescrStatsW(logs).ttost_mean(math.log(0.95), math.log(1.05))[0]
        cases.append({"log_errors": logs.tolist(), "band": 0.05, "tost_p": p})
    return cases


def plans():
    cases = []
    for half_width, pairs, level, distance in [
        (0.06, 10, 0.95, 0.05), (0.3, 4, 0.95, 0.05), (0.02, 40, 0.99, 0.01), (1.0, 2, 0.95, 0.04), (0.05, 12, 0.9, 1e-5),
    ]:
        effect = lambda n: t_critical(level, n - 1) + stats.t.ppf(POWER, n - 1)
        spread = half_width * math.sqrt(pairs) / t_critical(level, pairs - 1)
        needed = None
        if effect(1_000_000) * spread / 1000 <= distance:
            needed = next(n for n in range(pairs + 1, 1_000_001) if effect(n) * spread / math.sqrt(n) <= distance)
        cases.append({
            "half_width": half_width,
            "pairs": pairs,
            "level": level,
            "distance": distance,
            "detectable": effect(pairs) * spread / math.sqrt(pairs),
            "needed": needed,
        })
    return cases


def stratified(strata):
    parts = [np.var(s, ddof=1) / len(s) for s in strata]
    df = sum(parts) ** 2 / sum(part**2 / (len(s) - 1) for part, s in zip(parts, strata))
    mean = np.mean([np.mean(s) for s in strata])
    half = t_critical(0.95, df) * math.sqrt(sum(parts)) / len(strata)
    return mean, mean - half, mean + half


def fidelity():
    cases = []
    for elastic, bias, floor in [(True, -0.08, 0.01), (False, 0.02, 0.005)]:
        cells = []
        for target, n, noise in [(0.1, 6, 0.05), (0.4, 10, 0.02), (0.7, 8, 0.01), (0.9, 3, 0.01)]:
            ideal = target if elastic else 1.0
            cells.append({
                "target": target,
                "ideal": ideal,
                "ratios": (ideal * np.exp(RNG.normal(bias, noise, n))).tolist(),
            })
        errors = [np.log(np.array(cell["ratios"]) / cell["ideal"]) for cell in cells]
        mean, low, high = stratified([np.abs(e) for e in errors])
        low = max(low, 0.0)
        score = lambda m: 100 * math.exp(-math.sqrt(max(m * m - floor * floor, 0)) / 0.05 * math.log(2))
        halves = [t_critical(1 - 0.05 / len(cells), len(e) - 1) * stats.sem(e) for e in errors]
        worst = (
            max(abs(np.mean(e)) for e in errors),
            max(0.0, *(abs(np.mean(e)) - half for e, half in zip(errors, halves))),
            max(abs(np.mean(e)) + half for e, half in zip(errors, halves)),
        )
        x = np.concatenate([np.full(len(cell["ratios"]), math.log(cell["target"])) for cell in cells])
        y = np.log(np.concatenate([cell["ratios"] for cell in cells]))
        line = sm.OLS(y, sm.add_constant(x)).fit()
        cases.append({
            "cells": cells,
            "floor": floor,
            "bias": [math.expm1(v) for v in stratified(errors)],
            "error": [math.expm1(v) for v in (mean, low, high)],
            "worst": [math.expm1(v) for v in worst],
            "elasticity": [line.params[1], *line.conf_int(alpha=0.05)[1]],
            "score": [score(mean), score(high), score(low)],
        })
    return cases


def main():
    oracles = {
        "made_by": f"make_oracles.py with scipy {scipy.__version__}, statsmodels {statsmodels.__version__}, "
                   f"numpy {np.__version__}",
        "t_critical": t_criticals(),
        "t_two_sided": t_two_sided(),
        "f_upper_tail": f_upper_tail(),
        "normal_quantile": normal_quantiles(),
        "samples": samples(),
        "median_ranks": median_ranks(),
        "shares": shares(),
        "paired": paired(),
        "regressions": regressions(),
        "equivalence": equivalence(),
        "plans": plans(),
        "fidelity": fidelity(),
    }
    path = pathlib.Path(__file__).with_name("oracles.json")
    path.write_text("{\n" + ",\n".join(f'"{key}": {json.dumps(value)}' for key, value in oracles.items()) + "\n}\n")


if __name__ == "__main__":
    main()
