// Holds a dashboard against the types that Grafana publishes (@grafana/schema): of the dashboard, its variables and panels, and
// of each panel's options and field settings. A key that they do not know, or a value of another type, is an error of the
// TypeScript compiler. It shows nothing and asks no Grafana.
//
// usage: node check.mjs DASHBOARD.json, in a folder with the packages of package.json
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';

const kinds = {
  timeseries: 'TimeSeriesPanelCfg', stat: 'StatPanelCfg', table: 'TablePanelCfg', heatmap: 'HeatmapPanelCfg', bargauge: 'BarGaugePanelCfg',
};

// JSON has the values of enums and not their names.
const plain = `type Plain<T> = T extends string ? \`\${T}\` : T extends number | boolean | null | undefined ? T
  : T extends (infer U)[] ? Plain<U>[] : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;`;

function source(dashboard) {
  const lines = [`import type { Dashboard } from '@grafana/schema';`];
  for (const [kind, name] of Object.entries(kinds)) {
    lines.push(`import type * as ${kind} from '@grafana/schema/dist/esm/raw/composable/${kind}/panelcfg/x/${name}_types.gen';`);
  }
  lines.push(plain, `export const dashboard: Plain<Dashboard> = ${JSON.stringify(dashboard, null, 1)};`);
  for (const p of dashboard.panels) {
    if (p.type === 'row') continue;
    if (!kinds[p.type]) throw new Error(`panel ${p.id} "${p.title}" is of the type ${p.type}, which is not known here`);
    lines.push(`// ${p.title}`, `export const options${p.id}: Partial<Plain<${p.type}.Options>> = ${JSON.stringify(p.options, null, 1)};`);
    if (p.fieldConfig.defaults.custom && p.type !== 'stat' && p.type !== 'bargauge') {
      lines.push(`export const fields${p.id}: Partial<Plain<${p.type}.FieldConfig>> = ${JSON.stringify(p.fieldConfig.defaults.custom, null, 1)};`);
    }
  }
  return lines.join('\n') + '\n';
}

// errors are what the compiler says of a dashboard, empty where all is well.
function errors(dashboard) {
  writeFileSync('dashboard.ts', source(dashboard));
  try {
    execFileSync('node_modules/.bin/tsc', ['--noEmit', '--strict', '--skipLibCheck', '--module', 'nodenext', '--moduleResolution', 'nodenext',
      '--target', 'es2022', '--types', '', 'dashboard.ts'], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
    return '';
  } catch (e) {
    return e.stdout || String(e);
  }
}

const dashboard = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const said = errors(dashboard);
if (said) {
  console.error(said);
  process.exit(1);
}

// The check itself must notice mistakes.
const mistakes = {
  'a misspelt key of the dashboard': d => { d.refesh = '5m'; },
  'a misspelt key of a panel': d => { d.panels[1].titel = 'x'; },
  'an unknown kind of variable': d => { d.templating.list[0].type = 'datasources'; },
  'a misspelt option': d => { d.panels.find(p => p.type === 'timeseries').options.legends = {}; },
  'an option of another type': d => { d.panels.find(p => p.type === 'heatmap').options.cellGap = 'wide'; },
  'a misspelt field setting': d => { d.panels.find(p => p.type === 'timeseries').fieldConfig.defaults.custom.drawStile = 'line'; },
};
for (const [what, plant] of Object.entries(mistakes)) {
  const harmed = structuredClone(dashboard);
  plant(harmed);
  if (!errors(harmed)) {
    console.error(`${what} was not noticed`);
    process.exit(1);
  }
}
console.log(`${process.argv[2]}: ${dashboard.panels.length} panels and rows are of Grafana's schema`);
