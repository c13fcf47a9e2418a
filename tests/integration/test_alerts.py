"""The chart's alert rules, checked and unit tested by the real promtool."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parent))

from chart_rendering import CHART
from prometheus_server import call, guide_config

pytestmark = pytest.mark.integration
RULES = CHART / "monitoring" / "alerts.yaml"
TESTS = Path(__file__).parent / "data" / "alerts-test.yaml"
# a change of a rule, and an alert whose tests notice it
MUTANTS = [
    ("leader == 1", "leader == 0"),
    ("responsive == 0", "responsive == 2"),
    ("healthy == 0 and", "healthy < 1 and"),
    ("> 0.03", "> 0.1"),
    ("> 0.03", "> 0.02"),
    ("> 60", "> 200"),
    ("> 60", "> 20"),
    ("> 0.5\n", "> 0.9\n"),
    ('cause="quota"', 'cause="other"'),
    ("for: 10m", "for: 30m"),
]


def unit_test(tool: Path, folder: Path, rules: str) -> tuple[int, str]:
    """Run the unit tests on these rules; return exit status and output."""
    (folder / "alerts.yaml").write_text(rules)
    shutil.copy(TESTS, folder)
    done = call(tool, "test", "rules", TESTS.name, cwd=folder)
    return done.returncode, done.stdout + done.stderr


def test_promtool_accepts_the_rules(prometheus_programs: tuple[Path, Path]) -> None:
    done = call(prometheus_programs[1], "check", "rules", str(RULES))
    assert done.returncode == 0, done.stderr
    assert "SUCCESS: 7 rules found" in done.stdout


def test_promtool_parses_every_query_of_the_dashboards(prometheus_programs: tuple[Path, Path], tmp_path: Path) -> None:
    """As recording rules: promtool parses these without a server."""
    boards = [json.loads(path.read_text()) for path in sorted(RULES.parent.glob("dashboard-*.json"))]
    queries = [target["expr"] for board in boards for panel in board["panels"] for target in panel.get("targets", [])]
    assert len(boards) == 4
    assert len(queries) > 50
    rules = [
        {"record": f"query:{number}", "expr": re.sub(r"\$__(rate_interval|range)", "5m", query)}
        for number, query in enumerate(queries)
    ]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    done = call(prometheus_programs[1], "check", "rules", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"SUCCESS: {len(queries)} rules found" in done.stdout


def test_promtool_accepts_the_configuration_in_the_guide(
    prometheus_programs: tuple[Path, Path], tmp_path: Path
) -> None:
    """Debian's promtool lacks the discovery of Kubernetes' pods, so a fixed target stands in for that one line."""
    config = guide_config()
    (job,) = config["scrape_configs"]
    assert job.pop("kubernetes_sd_configs") == [{"role": "pod", "namespaces": {"names": ["podium-system"]}}]
    job["static_configs"] = [{"targets": ["127.0.0.1:8080"]}]
    file = tmp_path / "prometheus.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], **config}))
    done = call(prometheus_programs[1], "check", "config", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS: 7 rules found" in done.stdout


def test_each_alert_fires_and_does_not_fire(prometheus_programs: tuple[Path, Path], tmp_path: Path) -> None:
    status, output = unit_test(prometheus_programs[1], tmp_path, RULES.read_text())
    assert status == 0, output
    tests = [test for group in yaml.safe_load(TESTS.read_text())["tests"] for test in group["alert_rule_test"]]
    names = {rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]}
    assert {test["alertname"] for test in tests if test.get("exp_alerts")} == names
    assert {test["alertname"] for test in tests if not test.get("exp_alerts")} == names


@pytest.mark.parametrize(("before", "after"), MUTANTS)
def test_the_unit_tests_notice_a_changed_rule(
    prometheus_programs: tuple[Path, Path], tmp_path: Path, before: str, after: str
) -> None:
    rules = RULES.read_text()
    assert before in rules
    status, output = unit_test(prometheus_programs[1], tmp_path, rules.replace(before, after))
    assert status == 1, output
