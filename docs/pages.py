"""Write the pictures of the pages in a browser, and a conversation of an agent: ``make pages``."""

import asyncio
import json
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlencode

from mcp import Client
from playwright.sync_api import sync_playwright

from roofplan.agents.server import agents
from roofplan.web.pages import PAGES
from roofplan.workers.pool import Pool

HERE = Path(__file__).parent
SIDES = urlencode(
    [
        ("ask", "/serve?model=llama-3.1-70b&on=h100-sxm:8&tpot=50ms"),
        ("ask", "/serve?model=llama-3.1-70b&on=mi300x:8&tpot=50ms"),
    ]
)
TALL = {"serve", "side-by-side"}
MOST = 1400
"""Characters of an answer that the page shows."""

STORY = [
    ("A misspelt name comes back with the nearest.", "plan_serving", {"model": "llama3-70", "on": ["h100-sxm:1"]}),
    (
        "What does not fit comes back with the smallest changes that work.",
        "plan_serving",
        {"model": "llama-3.1-70b", "on": ["h100-sxm:1"]},
    ),
    ("One of them.", "plan_serving", {"model": "llama-3.1-70b", "on": ["h100-sxm:2"], "tpot": "60ms", "top": "1"}),
    (
        "Why so slow?",
        "explain",
        {
            "question": "serve",
            "inputs": {"model": "llama-3.1-70b", "on": ["h100-sxm:2"], "tpot": "60ms"},
            "figure": "tpot",
            "depth": 1,
        },
    ),
    (
        "Against another machine.",
        "compare",
        {
            "questions": [
                {"inputs": {"model": "llama-3.1-70b", "on": [one], "tpot": "60ms"}}
                for one in ("h100-sxm:2", "mi300x:1")
            ]
        },
    ),
]


def pictures():
    """Draw every page as it answers its first preset."""
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        port = place.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "roofplan", "web", "--port", str(port)], stderr=subprocess.PIPE, text=True
    )
    server.stderr.readline()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    shots = {path.replace("/", "-"): path for path in PAGES} | {"home": "", "side-by-side": f"side-by-side?{SIDES}"}
    try:
        with sync_playwright() as driver:
            browser = driver.chromium.launch(
                executable_path=chromium, args=["--no-sandbox", "--disable-background-networking"]
            )
            for name, path in shots.items():
                page = browser.new_page(viewport={"width": 1060, "height": 1500 if name in TALL else 800})
                page.goto(f"http://127.0.0.1:{port}/{path}")
                if path:
                    page.wait_for_selector("#answer[data-status]", timeout=120_000)
                    page.wait_for_timeout(1500)
                page.screenshot(path=HERE / "pictures" / f"web-{name}.png")
                page.close()
            browser.close()
    finally:
        server.terminate()
        server.wait()


async def conversation():
    """Return the lines of an agent's conversation."""
    lines = []
    async with Client(agents(Pool(1, 120.0, 4, "roofplan.workers.answers"))) as client:
        for said, tool, given in STORY:
            found = (await client.call_tool(tool, given)).structured_content
            text = json.dumps(found, indent=1)
            shown = text if len(text) <= MOST else text[:MOST].rsplit("\n", 1)[0] + "\n ..."
            lines += [said, "", "```", f"{tool} {json.dumps(given)}", "", *shown.splitlines(), "```", ""]
    return lines


def main():
    """Write both."""
    page = HERE / "agents.md"
    before = re.split(r"(?<=cut at `\.\.\.`\.\n)", page.read_text())[0]
    page.write_text(before + "\n" + "\n".join(asyncio.run(conversation())).rstrip() + "\n")
    pictures()


if __name__ == "__main__":
    main()
