#!/usr/bin/env python3
"""
The HTML report in headless Chromium, as JSON: seconds to the first paint, the 95th percentile of its frames while scrolling in
milliseconds, and console errors. The worst of light and dark, at 360, 768 and 1,600 pixels.

The report has 20,000 tasks. A page that scrolls sideways, asks for anything else, or draws no timeline fails.

    report_page.py [--shots FOLDER]    also keeps a picture of each; needs a Chromium
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from packages import needs

ROOT = Path(__file__).resolve().parents[2]
WIDTHS = (360, 768, 1600)
# Scrolls to the end and back over two seconds, and gives the milliseconds between frames.
SCROLLED = """() => new Promise(done => {
  const frames = [], end = document.documentElement.scrollHeight - innerHeight, begun = performance.now();
  let last = null;
  const step = now => {
    if (last !== null) frames.push(now - last);
    last = now;
    const way = (now - begun) / 2000;
    if (way >= 1) return done(frames);
    scrollTo(0, end * (1 - Math.abs(1 - 2 * way)));
    requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
})"""
# Which share of the timeline has the colour of kernels.
COLOURED = """() => {
  const root = document.querySelector(".brambling-report"), canvas = root.querySelector("canvas");
  const colour = parseInt(getComputedStyle(root).getPropertyValue("--kernels").trim().slice(1), 16);
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  let found = 0;
  for (let at = 0; at < pixels.length; at += 4) found += (pixels[at] << 16 | pixels[at + 1] << 8 | pixels[at + 2]) === colour;
  return found / (pixels.length / 4);
}"""


def reports(folder):
    """Writes the report of the example's job into a folder."""
    command = ["cargo", "run", "--quiet", "--release", "--package", "brambling-machine", "--example", "report", "--", str(folder)]
    subprocess.run(command, check=True, cwd=ROOT)


def visited(browser, page_file, width, scheme, shots):
    """First paint, frames and console errors of one visit."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    errors, asked = [], []
    page.on("console", lambda message: errors.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(page_file.as_uri(), wait_until="load")
    page.wait_for_function("document.querySelector('.brambling-report canvas').height > 150")
    page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length > 0")
    painted = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime") / 1e3
    others = [url for url in asked if url != page_file.as_uri() and not url.startswith("data:")]
    assert not others, f"the page asked for {others}"
    assert page.evaluate(COLOURED) > 0.2, f"at {width} pixels the timeline shows no kernels"
    sideways = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert sideways <= 0, f"at {width} pixels the page is {sideways} pixels too wide"
    if shots:
        page.screenshot(path=shots / f"{scheme}-{width}.png", full_page=True)
    frames = page.evaluate(SCROLLED)
    used(page)
    page.close()
    return painted, statistics.quantiles(frames, n=20)[-1], errors


def used(page):
    """What a reader does with the timeline: points at it, colours it by stage, enlarges a piece, and goes back."""
    canvas = page.locator(".brambling-report canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 40)
    assert page.locator(".brambling-report .tip").is_visible(), "pointing at a row shows nothing"
    page.locator("[data-colours=stages]").click()
    assert page.locator(".brambling-report .legend.stages").is_visible(), "stages have no legend"
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 40)
    page.mouse.up()
    page.locator("[data-whole]").click()
    page.locator("[data-colours=parts]").click()


def main():
    needs("playwright", "playwright>=1.50,<2")
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shots", type=Path)
    shots = parser.parse_args().shots
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("no Chromium is installed: apt-get install chromium")
    if shots:
        shots.mkdir(parents=True, exist_ok=True)
    paints, frames, errors = [], [], []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        reports(folder)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            for width in WIDTHS:
                painted, frame, found = visited(browser, Path(folder) / "report.html", width, scheme, shots)
                print(f"{scheme} {width}: first paint {painted:.2f} s, frames {frame:.1f} ms, {len(found)} errors", file=sys.stderr)
                paints.append(painted)
                frames.append(frame)
                errors += found
        browser.close()
    assert not errors, errors
    print(json.dumps({"first_paint_s": round(max(paints), 3), "frame_p95_ms": round(max(frames), 2), "console_errors": len(errors)}))


main()
