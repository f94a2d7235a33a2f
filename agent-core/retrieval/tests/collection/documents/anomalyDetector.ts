// Finds readings that are far from what was expected for a household.

export interface Reading { meterId: string; litres: number; takenAt: Date }

/** Median absolute deviation, which a single burst pipe does not distort. */
export function medianAbsoluteDeviation(values: number[]): number {
  const median = quantile(values, 0.5);
  return quantile(values.map((value) => Math.abs(value - median)), 0.5);
}

export class AnomalyDetector {
  constructor(private readonly sensitivity = 3.5, private readonly windowDays = 28) {}

  /** True if the consumption of a day is an outlier of the window before it. */
  isOutlier(history: Reading[], today: Reading): boolean {
    const window = history.slice(-this.windowDays).map((reading) => reading.litres);
    const spread = medianAbsoluteDeviation(window) || 1;
    return Math.abs(today.litres - quantile(window, 0.5)) / spread > this.sensitivity;
  }

  /** A leak: water flows in every hour of the night. */
  detectLeak(hourlyLitres: number[]): boolean {
    return hourlyLitres.slice(1, 5).every((litres) => litres > 0);
  }
}

function quantile(values: number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor((sorted.length - 1) * share)] ?? 0;
}
