-- Tables of the billing database.

CREATE TABLE utility (
    id           BIGINT PRIMARY KEY,
    name         TEXT NOT NULL,
    suspended_at TIMESTAMPTZ
);

CREATE TABLE tariff_step (
    tariff_id   BIGINT NOT NULL REFERENCES tariff (id),
    from_litres BIGINT NOT NULL,
    price_cents NUMERIC(10, 4) NOT NULL,
    PRIMARY KEY (tariff_id, from_litres)
);

-- One row per approved correction; invoices themselves are never updated.
CREATE TABLE credit_note (
    id           BIGINT PRIMARY KEY,
    invoice_id   BIGINT NOT NULL REFERENCES invoice (id),
    amount_cents BIGINT NOT NULL CHECK (amount_cents > 0),
    approved_by  TEXT NOT NULL
);

-- Partitioned by month, since a utility with a million meters writes 24 million rows a day.
CREATE TABLE reading_hourly (
    meter_id BIGINT NOT NULL,
    hour     TIMESTAMPTZ NOT NULL,
    litres   INTEGER NOT NULL,
    PRIMARY KEY (meter_id, hour)
) PARTITION BY RANGE (hour);
