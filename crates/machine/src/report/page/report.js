// Draws the timeline on a canvas, once for each size, colour and piece of time: scrolling draws nothing.
"use strict";
(() => {
  const script = document.currentScript;
  const all = script ? [script.closest(".brambling-report")] : document.querySelectorAll(".brambling-report");
  for (const root of all) {
    if (root && !root.dataset.drawn) {
      root.dataset.drawn = "yes";
      // The text is painted first.
      requestAnimationFrame(() => setTimeout(() => timeline(root)));
    }
  }

  function timeline(root) {
    const data = JSON.parse(root.querySelector(".data").textContent);
    const place = root.querySelector(".timeline");
    const canvas = place.querySelector("canvas");
    const tip = root.querySelector(".tip");
    const controls = root.querySelector(".controls");
    const whole = controls.querySelector("[data-whole]");
    const legend = root.querySelector(".legend.stages");
    const lanes = data.lanes.map(decoded);
    const view = { from: 0, to: data.wall, byStage: false, drag: null };
    if (!lanes.length || !(data.wall > 0)) {
      place.hidden = true;
      return;
    }
    controls.hidden = false;

    // ---- the shape

    function shape() {
      const width = Math.max(place.clientWidth, 160);
      const narrow = width < 520;
      const height = lanes.length <= 8 ? 30 : lanes.length <= 16 ? 22 : lanes.length <= 32 ? 14 : 9;
      const left = narrow ? 58 : 84, right = narrow ? 40 : 54;
      let y = 0, worker = null;
      const tops = lanes.map((lane) => {
        if (data.named && lane.worker !== worker) y += worker === null ? 22 : 28;
        worker = lane.worker;
        const top = y;
        y += height + (height > 12 ? 4 : 2);
        return top;
      });
      return { width, left, right, height, tops, bottom: y, whole: y + 24, inner: width - left - right };
    }

    function colours() {
      const style = getComputedStyle(root);
      const value = (name) => style.getPropertyValue(name).trim();
      return {
        parts: data.parts.map((part) => value(`--${part}`)), stages: [0, 1, 2, 3, 4, 5, 6, 7].map((index) => value(`--stage-${index}`)),
        idle: value("--stragglers"), ink: value("--ink"), muted: value("--muted"), track: value("--track"), line: value("--line"),
      };
    }

    // ---- drawing

    function draw() {
      const at = shape(), palette = colours(), scale = window.devicePixelRatio || 1;
      canvas.width = Math.round(at.width * scale);
      canvas.height = Math.round(at.whole * scale);
      canvas.style.height = `${at.whole}px`;
      const pen = canvas.getContext("2d");
      pen.setTransform(scale, 0, 0, scale, 0, 0);
      pen.clearRect(0, 0, at.width, at.whole);
      axis(pen, at, palette);
      lanes.forEach((lane, index) => {
        labels(pen, at, palette, lane, index);
        pen.fillStyle = palette.track;
        pen.fillRect(at.left, at.tops[index], at.inner, at.height);
        area(pen, at, palette, lane, at.tops[index], scale);
      });
      if (view.drag) {
        pen.fillStyle = palette.ink;
        pen.globalAlpha = 0.16;
        pen.fillRect(Math.min(view.drag.begin, view.drag.end), 0, Math.abs(view.drag.end - view.drag.begin), at.bottom);
        pen.globalAlpha = 1;
      }
      whole.hidden = view.from === 0 && view.to === data.wall;
    }

    function axis(pen, at, palette) {
      const span = view.to - view.from, wanted = Math.max(3, Math.floor(at.inner / 110));
      const step = nice(span / wanted), unit = step >= 0.5 ? [1, "s"] : step >= 0.0005 ? [1e3, "ms"] : [1e6, "µs"];
      pen.font = "12px system-ui, sans-serif";
      pen.textBaseline = "alphabetic";
      pen.textAlign = "center";
      for (let tick = Math.ceil(view.from / step - 1e-9); tick * step <= view.to + step * 1e-6; tick += 1) {
        const x = at.left + (tick * step - view.from) / span * at.inner;
        pen.fillStyle = palette.line;
        pen.fillRect(Math.round(x), 0, 1, at.bottom + 4);
        pen.fillStyle = palette.muted;
        pen.fillText(`${Number((tick * step * unit[0]).toPrecision(6))} ${unit[1]}`, x, at.bottom + 18);
      }
    }

    function labels(pen, at, palette, lane, index) {
      const top = at.tops[index];
      if (data.named && (index === 0 || lanes[index - 1].worker !== lane.worker)) {
        pen.font = "600 12.5px system-ui, sans-serif";
        pen.fillStyle = palette.ink;
        pen.textAlign = "left";
        pen.textBaseline = "alphabetic";
        pen.fillText(lane.worker, 0, top - 7, at.width);
      }
      if (at.height < 12 && index % 2) return;
      pen.font = "12px system-ui, sans-serif";
      pen.textBaseline = "middle";
      pen.fillStyle = palette.muted;
      pen.textAlign = "left";
      pen.fillText(lane.name, 0, top + at.height / 2 + 0.5, at.left - 8);
      pen.textAlign = "right";
      pen.fillText(lane.busy, at.width, top + at.height / 2 + 0.5, at.right - 6);
    }

    // Each column of pixels shows what the thread did in its time, from below. Alike columns are one rectangle.
    function area(pen, at, palette, lane, top, scale) {
      const columns = Math.max(1, Math.round(at.inner * scale)), span = view.to - view.from, column = span / columns;
      const slots = data.parts.length + (view.byStage ? palette.stages.length : 0);
      const sums = new Float64Array(columns * slots);
      for (let index = 0; index < lane.begins.length; index += 1) {
        const begin = lane.begins[index], end = lane.ends[index], length = end - begin;
        if (end <= view.from || begin >= view.to || !(length > 0)) continue;
        const first = Math.max(0, Math.floor((begin - view.from) / column)), last = Math.min(columns - 1, Math.floor((end - view.from) / column));
        for (let x = first; x <= last; x += 1) {
          const covered = Math.min(end, view.from + (x + 1) * column) - Math.max(begin, view.from + x * column);
          if (covered <= 0) continue;
          for (let piece = lane.firsts[index]; piece < lane.firsts[index + 1]; piece += 1) {
            const part = lane.kinds[piece], stage = lane.stages[index];
            const slot = part === 0 && view.byStage && stage >= 0 ? data.parts.length + stage % palette.stages.length : part;
            sums[x * slots + slot] += lane.times[piece] / length * covered / column;
          }
        }
      }
      const order = [];
      for (let slot = data.parts.length; slot < slots; slot += 1) order.push([slot, palette.stages[slot - data.parts.length]]);
      // Stages have the colours for themselves: whatever is no kernel is grey.
      palette.parts.forEach((colour, slot) => order.push([slot, view.byStage && slot > 0 ? palette.idle : colour]));
      for (let x = 0; x < columns;) {
        let next = x + 1;
        while (next < columns && alike(sums, x * slots, next * slots, slots)) next += 1;
        let bottom = top + at.height;
        for (const [slot, colour] of order) {
          const tall = sums[x * slots + slot] * at.height;
          if (tall < 0.02) continue;
          pen.fillStyle = colour;
          pen.fillRect(at.left + x / scale, bottom - tall, (next - x) / scale, tall);
          bottom -= tall;
        }
        x = next;
      }
    }

    function alike(sums, one, other, slots) {
      for (let slot = 0; slot < slots; slot += 1) if (Math.abs(sums[one + slot] - sums[other + slot]) > 0.004) return false;
      return true;
    }

    // ---- pointing

    function found(event) {
      const box = canvas.getBoundingClientRect(), at = shape();
      const x = event.clientX - box.left, y = event.clientY - box.top;
      const index = at.tops.findIndex((top) => y >= top && y < top + at.height + 2);
      const time = view.from + (x - at.left) / at.inner * (view.to - view.from);
      return { x, y, at, lane: index < 0 || time < view.from || time > view.to ? null : lanes[index], time };
    }

    function point(event) {
      const { x, y, at, lane, time } = found(event);
      const index = lane ? lane.ends.findIndex((end) => time < end) : -1;
      if (index < 0 || time < lane.begins[index] || view.drag) {
        tip.hidden = true;
        return;
      }
      const length = lane.ends[index] - lane.begins[index];
      tip.replaceChildren();
      const stage = lane.stages[index] >= 0 ? data.stages[lane.stages[index]] : "no kernel";
      add(tip, "b", lane.stages[index] >= 0 ? `mostly ${stage}` : stage);
      add(tip, "span", `${data.named ? `${lane.worker}, ` : ""}${lane.name}, at ${written(lane.begins[index])} for ${written(length)}, ${lane.tasks[index]} task${lane.tasks[index] === 1 ? "" : "s"}`);
      for (let piece = lane.firsts[index]; piece < lane.firsts[index + 1]; piece += 1) {
        const row = add(tip, "div", "");
        add(row, "i", "").className = `swatch p-${data.parts[lane.kinds[piece]]}`;
        add(row, "span", data.parts[lane.kinds[piece]].replace("_", " "));
        add(row, "span", written(lane.times[piece]));
      }
      tip.hidden = false;
      const wide = tip.offsetWidth;
      tip.style.transform = `translate(${Math.max(0, Math.min(x + 14, at.width - wide))}px, ${y + 16}px)`;
    }

    canvas.addEventListener("pointermove", (event) => {
      if (view.drag) {
        const { x, at } = found(event);
        view.drag.end = Math.max(at.left, Math.min(at.left + at.inner, x));
        requestAnimationFrame(draw);
      }
      point(event);
    });
    canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
    canvas.addEventListener("pointerdown", (event) => {
      const { x, at } = found(event);
      // A finger scrolls.
      if (event.pointerType !== "mouse" || event.button !== 0 || x < at.left || x > at.left + at.inner) return;
      canvas.setPointerCapture(event.pointerId);
      view.drag = { begin: x, end: x };
    });
    canvas.addEventListener("pointerup", () => {
      if (!view.drag) return;
      const at = shape(), { begin, end } = view.drag, span = view.to - view.from;
      view.drag = null;
      if (Math.abs(end - begin) >= 4) {
        const time = (x) => view.from + (x - at.left) / at.inner * span;
        [view.from, view.to] = [time(Math.min(begin, end)), time(Math.max(begin, end))];
      }
      draw();
    });
    canvas.addEventListener("pointercancel", () => { view.drag = null; draw(); });
    const back = () => { [view.from, view.to] = [0, data.wall]; draw(); };
    canvas.addEventListener("dblclick", back);
    whole.addEventListener("click", back);
    for (const button of controls.querySelectorAll("[data-colours]")) {
      button.addEventListener("click", () => {
        view.byStage = button.dataset.colours === "stages";
        for (const other of controls.querySelectorAll("[data-colours]")) other.setAttribute("aria-pressed", String(other === button));
        legend.hidden = !view.byStage;
        draw();
      });
    }
    [...data.stages, null].forEach((stage, index) => {
      const item = add(legend, "li", "");
      add(item, "i", "").className = "swatch";
      item.firstChild.style.background = stage === null ? "var(--stragglers)" : `var(--stage-${index % 8})`;
      add(item, "span", stage === null ? "no kernel" : stage).className = "name";
    });

    new ResizeObserver(() => { if (canvas.width !== Math.round(shape().width * (window.devicePixelRatio || 1))) draw(); }).observe(place);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    draw();
  }

  // A row's moments come as whole microseconds: begin, stage, tasks, how many parts, and each part with its time.
  function decoded(lane) {
    const begins = [], ends = [], stages = [], tasks = [], firsts = [0], kinds = [], times = [];
    for (let at = 0; at < lane.moments.length;) {
      const [begin, stage, ended, count] = lane.moments.slice(at, at + 4);
      let length = 0;
      for (let piece = 0; piece < count; piece += 1) {
        kinds.push(lane.moments[at + 4 + 2 * piece]);
        times.push(lane.moments[at + 5 + 2 * piece] / 1e6);
        length += times[times.length - 1];
      }
      begins.push(begin / 1e6);
      ends.push(begin / 1e6 + length);
      stages.push(stage);
      tasks.push(ended);
      firsts.push(kinds.length);
      at += 4 + 2 * count;
    }
    return { worker: lane.worker, name: lane.name, busy: lane.busy, begins, ends, stages, tasks, firsts, kinds, times };
  }

  function add(parent, tag, text) {
    const element = document.createElement(tag);
    element.textContent = text;
    parent.append(element);
    return element;
  }

  function nice(rough) {
    const power = 10 ** Math.floor(Math.log10(rough));
    return power * [1, 2, 5, 10].find((times) => times * power >= rough * 0.999);
  }

  function written(seconds) {
    const [value, unit] = seconds >= 1 ? [seconds, "s"] : seconds >= 1e-3 ? [seconds * 1e3, "ms"] : [seconds * 1e6, "µs"];
    return `${value.toPrecision(3)} ${unit}`;
  }
})();
