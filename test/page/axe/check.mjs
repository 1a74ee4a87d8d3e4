// Opens pages in chromium, light and dark, from a phone's width to a wide screen's, and says what axe-core finds wrong
// with them, and whether one is wider than its window. usage: node check.mjs PAGE...
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { resolve } from "node:path";
import puppeteer from "puppeteer-core";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const browser = await puppeteer.launch({
	executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
	args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
});
let wrong = 0;
for (const file of process.argv.slice(2)) {
	for (const scheme of ["light", "dark"]) {
		for (const width of [390, 760, 1440, 2400]) {
			const page = await browser.newPage();
			await page.setBypassCSP(true); // the page's own policy lets no script in
			await page.setViewport({ width, height: 1000 });
			await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
			await page.goto("file://" + resolve(file));
			await page.evaluate(axe);
			const { violations, passes } = await page.evaluate(() => axe.run());
			const wide = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
			for (const v of violations) {
				console.log(`${file} ${scheme} ${width}: ${v.id} (${v.impact}): ${v.help}: ${v.nodes.length} times, first ${v.nodes[0].html.slice(0, 200)}`);
				console.log("  " + v.nodes[0].failureSummary.replaceAll("\n", " ").slice(0, 300));
			}
			if (wide > 0) console.log(`${file} ${scheme} ${width}: ${wide} pixels wider than the window`);
			wrong += violations.length + (wide > 0);
			console.log(`${file} ${scheme} ${width}: ${passes.length} rules passed, ${violations.length} failed`);
			await page.close();
		}
	}
}
await browser.close();
process.exit(wrong ? 1 : 0);
