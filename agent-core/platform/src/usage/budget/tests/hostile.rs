//! Clocks that jump or differ, calls over the end of a window, and processes with different catalogues.

use std::time::SystemTime;

use agent_core::ids::CompanyId;
use jiff::Timestamp;
use jiff::civil::Date;

use super::super::super::{MAX_RUN_ENTRIES, UsageDimension, UsageFilter, UsageObserver, UsageQuery};
use super::*;

/// Another date of the price, and a price ten times as high.
const OTHER_PRICES: &str =
    r#"{"asOf":"2026-02-02","models":[{"provider":"p","model":"m","prices":{"input":"10","output":"100"}}]}"#;
/// A price at which a prompt costs more when the provider writes it to its cache.
const CACHE_PRICES: &str = r#"{"asOf":"2026-01-01","models":[{"provider":"p","model":"m",
    "prices":{"input":"1","cacheWrite":"1.25","output":"10"}}]}"#;

fn at(time: &str) -> SystemTime {
    time.parse::<Timestamp>().expect("a time").into()
}

impl Installation {
    /// Returns an installation at a time.
    pub(super) fn at(time: &str) -> Self {
        Self { clock: ManualClock::at(at(time)), ..Self::new() }
    }

    /// Returns the recorder of another process, whose catalogue has other prices and whose clock is its own.
    fn process_at(&self, clock: &ManualClock, prices: &str) -> UsageRecorder {
        let other = Self { records: self.records.clone(), usage: self.usage.clone(), clock: clock.clone() };
        let process = other.process();
        let spawner: Arc<dyn Spawner> = Arc::new(|task| drop(tokio::spawn(task)));
        let table = match prices {
            "" => PriceTable::empty(),
            prices => PriceTable::empty().merged(prices).expect("prices"),
        };
        let budgets = Some(budgets(&process).clone());
        UsageRecorder::new(self.usage.clone(), table, Arc::new(clock.clone()), spawner, None, budgets)
    }

    /// Returns input and output tokens and the cost in the sums of each day.
    pub(super) async fn days(&self) -> Vec<(String, u64, i64)> {
        let filter = UsageFilter { from: Date::ZERO, to: Date::MAX, agent: None, user: None };
        let query = UsageQuery { filter, group_by: vec![UsageDimension::Day], after: None, limit: 100 };
        let page = self.usage.usage(&CompanyId::from(COMPANY), &query).await.expect("usage is read");
        let mut days: Vec<_> = page
            .rows
            .into_iter()
            .map(|row| {
                let tokens = row.sums.tokens.input_tokens + row.sums.tokens.output_tokens;
                (row.group[0].clone(), tokens, row.sums.cost.get())
            })
            .collect();
        days.sort();
        days
    }

    /// Settles what has expired, as a process does.
    async fn settle_expired(&self, process: &UsageRecorder) {
        let mut sweep = ReservationSweep::default();
        while sweep.settle_page(&*self.records, budgets(process), process).await.expect("a page") {}
    }
}

#[tokio::test]
async fn a_call_over_midnight_counts_in_the_window_in_which_it_ends() {
    for (unit_window, before, after) in [
        ("day", "2026-03-27T23:59:59Z", "2026-03-28T00:00:01Z"),
        ("month", "2026-03-31T23:59:59Z", "2026-04-01T00:00:01Z"),
    ] {
        let installation = Installation::at(before);
        let process = installation.process();
        put_company(&process, json!({"unit": "tokens", "amount": 1_000, "window": unit_window})).await;
        let (early, _) = reserve(&process, 300).await.expect("admitted");
        let (late, _) = reserve(&process, 300).await.expect("admitted");
        settle(&process, early, 20, 30).await;
        assert_eq!(amounts(&process).await, (50, 321));
        installation.clock.advance(Duration::from_secs(2));
        assert_eq!(amounts(&process).await, (0, 321), "calls in progress stay reserved");
        settle(&process, late, 20, 10).await;
        assert_eq!(amounts(&process).await, (30, 0), "{unit_window}");
        let days: Vec<_> =
            installation.days().await.into_iter().map(|(day, tokens, _)| (day, tokens)).collect();
        let day = |time: &str| time[..10].to_owned();
        assert_eq!(days, [(day(before), 50), (day(after), 30)], "the ledger has the same");
    }
}

#[tokio::test]
async fn windows_take_no_notice_of_daylight_saving_time() {
    // Clocks in Europe go forward in this night, and back in the other.
    for night in ["2026-03-29T00:59:59Z", "2026-10-25T00:59:59Z"] {
        let installation = Installation::at(night);
        let process = installation.process();
        put_company(&process, json!({"unit": "tokens", "amount": 1_000, "window": "day"})).await;
        let company = COMPANY.into();
        let resets_at = async || {
            let found = budgets(&process).get(&company, BudgetKind::Company, COMPANY).await.expect("read");
            let (subject, budget) = ((BudgetKind::Company, COMPANY), found.expect("a budget").value);
            let status = budgets(&process).status(&company, subject, &budget).await.expect("read");
            status.limits[0].resets_at.expect("an end").to_string()
        };
        let end = resets_at().await;
        assert!(end.ends_with("T00:00:00Z"), "{end}");
        for expected in [50, 100, 150] {
            let (reservation, _) = reserve(&process, 300).await.expect("admitted");
            settle(&process, reservation, 20, 30).await;
            assert_eq!((amounts(&process).await, resets_at().await), ((expected, 0), end.clone()));
            installation.clock.advance(Duration::from_secs(3_600));
        }
    }
}

#[tokio::test]
async fn a_clock_that_was_ahead_leaves_no_call_uncounted() {
    let installation = Installation::at("2026-03-27T12:00:00Z");
    let process = installation.process();
    put_company(&process, json!({"unit": "tokens", "amount": 1_000, "window": "day"})).await;
    // The clock is wrong for one call, which begins the next day's window.
    installation.clock.set(at("2026-03-28T00:00:05Z"));
    let (reservation, _) = reserve(&process, 300).await.expect("admitted");
    settle(&process, reservation, 20, 30).await;
    installation.clock.set(at("2026-03-27T12:00:05Z"));
    for expected in [350, 650] {
        let (reservation, _) = reserve(&process, 300).await.expect("admitted");
        settle(&process, reservation, 20, 280).await;
        assert_eq!(amounts(&process).await, (expected, 0), "each call counts");
    }
    assert_eq!(reserve(&process, 400).await.expect("a shorter answer").1, 329);
}

#[tokio::test]
async fn the_calls_of_a_process_whose_clock_is_behind_count() {
    let installation = Installation::at("2026-03-28T00:00:02Z");
    let process = installation.process();
    put_company(&process, json!({"unit": "tokens", "amount": 1_000, "window": "day"})).await;
    let (reservation, _) = reserve(&process, 300).await.expect("admitted");
    settle(&process, reservation, 20, 30).await;
    let behind = installation.process_at(&ManualClock::at(at("2026-03-27T23:59:57Z")), PRICES);
    let (reservation, _) = reserve(&behind, 300).await.expect("admitted");
    settle(&behind, reservation, 20, 280).await;
    assert_eq!(amounts(&process).await, (350, 0));
}

#[tokio::test]
async fn a_lost_call_is_booked_at_the_price_with_which_it_was_reserved() {
    for (limit, others) in [
        (json!({"unit": "cost", "amount": "5", "window": "month"}), ["", OTHER_PRICES]),
        (json!({"unit": "tokens", "amount": 1_000_000, "window": "month"}), [OTHER_PRICES, ""]),
    ] {
        let installation = Installation::new();
        let lost = installation.process_at(&installation.clock, CACHE_PRICES);
        // Processes without the price, as of a company's provider, and with another one.
        let [one, two] = others.map(|prices| installation.process_at(&installation.clock, prices));
        put_company(&lost, limit).await;
        for _ in 0..2 {
            std::mem::forget(reserve(&lost, 300).await.expect("admitted").0);
        }
        let (_, reserved) = amounts(&lost).await;
        installation.clock.advance(Duration::from_secs(61));
        installation.settle_expired(&one).await;
        installation.settle_expired(&two).await;
        assert_eq!(amounts(&two).await, (reserved, 0), "a lost call counts with its whole reservation");
        let entries = installation.usage.run_usage(&COMPANY.into(), &"run".into()).await.expect("entries");
        // 21 tokens of input, if all of them are written to the cache, and 300 of output.
        let whole = 21 * 1_250 + 300 * 10_000;
        let booked: Vec<_> = entries
            .iter()
            .map(|entry| (entry.cost.map(NanoUsd::get), entry.price_as_of.as_deref(), entry.estimated))
            .collect();
        assert_eq!(booked, [(Some(whole), Some("2026-01-01"), true); 2]);
        assert_eq!(installation.days().await, [("2026-01-01".to_owned(), 642, 2 * whole)]);
    }
}

/// Keeps provider, model and outcome of the calls that have ended.
#[derive(Default)]
struct EndedCalls(Mutex<Vec<[String; 3]>>);

impl UsageObserver for EndedCalls {
    fn on_model_call(&self, entry: &UsageEntry, provider: &str) {
        let call = [provider, &entry.model, &entry.outcome].map(str::to_owned);
        self.0.lock().expect("unpoisoned").push(call);
    }

    fn on_tool_call(&self, _: &str, _: &'static str) {}
}

#[tokio::test]
async fn a_lost_call_is_reported_once_and_without_the_name_of_a_companys_provider() {
    let installation = Installation::new();
    let lost = installation.process();
    put_company(&lost, json!({"unit": "tokens", "amount": 1_000, "window": "day"})).await;
    std::mem::forget(reserve(&lost, 300).await.expect("admitted").0);
    let of_company = CallDemand { provider: "acme-azure".to_owned(), price: None, ..demand(&lost, 300) };
    let reserved = budgets(&lost).reserve_call(&scope("run"), of_company, || true).await.expect("admitted");
    std::mem::forget(reserved);
    installation.clock.advance(Duration::from_secs(61));
    let calls = Arc::new(EndedCalls::default());
    for _ in 0..2 {
        let spawner: Arc<dyn Spawner> = Arc::new(|task| drop(tokio::spawn(task)));
        let prices = PriceTable::empty().merged(PRICES).expect("prices");
        let (usage, clock) = (installation.usage.clone(), Arc::new(installation.clock.clone()));
        let budgets = Some(budgets(&lost).clone());
        let process = UsageRecorder::new(usage, prices, clock, spawner, Some(calls.clone()), budgets);
        installation.settle_expired(&process).await;
    }
    let mut calls = calls.0.lock().expect("unpoisoned").clone();
    calls.sort();
    assert_eq!(calls, [["other", "m", "lost"], ["p", "m", "lost"]]);
}

#[tokio::test]
async fn a_lost_call_of_a_long_run_counts_with_its_entries() {
    let installation = Installation::new();
    let process = installation.process();
    put_company(&process, json!({"unit": "tokens", "amount": 1_000, "window": "day"})).await;
    let (reservation, _) = reserve(&process, 300).await.expect("admitted");
    let call = UsageEntry { ended_at: process.now(), ..used(&reservation, 20, 5) };
    let of_other_model =
        UsageEntry { id: format!("{}.1", call.id), model: "other".to_owned(), ..call.clone() };
    let earlier = (0..MAX_RUN_ENTRIES).map(|n| UsageEntry { id: format!("earlier {n}"), ..call.clone() });
    let entries = earlier.chain([call.clone(), of_other_model]).collect();
    installation.usage.book(entries).await.expect("booked");
    std::mem::forget(reservation);
    installation.clock.advance(Duration::from_secs(61));
    installation.settle_expired(&process).await;
    assert_eq!(amounts(&process).await, (50, 0));
}

/// The rest of the budget has room for the longest answers of 23 calls, and for the actual usage of all of them. So each waits
/// for other reservations, and none is refused while there is room for the spent amounts.
#[tokio::test]
async fn two_hundred_calls_at_once_share_the_last_hundredth_of_a_budget() {
    let installation = Installation::new();
    let process = installation.process();
    let amount = 1_000_000;
    put_company(&process, json!({"unit": "tokens", "amount": amount, "window": "day"})).await;
    let (reservation, _) = reserve(&process, 989_980).await.expect("the first call");
    settle(&process, reservation, 20, 989_980).await;
    assert_eq!(amounts(&process).await, (990_000, 0));
    let calls = (0..200).map(async |_| {
        let (reservation, output) =
            reserve(&process, 400).await.expect("others give back what they do not use");
        assert!((256..=400).contains(&output), "{output}");
        process.book(vec![used(&reservation, 20, 20)], Some(reservation), None);
        process.flush().await;
    });
    let watch = async {
        loop {
            let (used, reserved) = amounts(&process).await;
            assert!(used + reserved <= amount, "{used} + {reserved}");
            installation.clock.advance(Duration::from_micros(100));
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        _ = futures_util::future::join_all(calls) => {}
        () = watch => unreachable!(),
    }
    assert_eq!(amounts(&process).await, (998_000, 0));
    let (reservation, output) = reserve(&process, 4_000).await.expect("the rest can be spent");
    assert_eq!(output, 1_979);
    settle(&process, reservation, 21, output).await;
    assert_eq!(amounts(&process).await, (amount, 0));
}

#[tokio::test]
async fn processes_with_different_catalogues_share_one_meter() {
    let installation = Installation::new();
    let (cheap, dear) = (
        installation.process_at(&installation.clock, PRICES),
        installation.process_at(&installation.clock, OTHER_PRICES),
    );
    put_company(&cheap, json!({"unit": "cost", "amount": "0.1", "window": "month"})).await;
    let mut expected = 0;
    for (process, nanos) in [(&cheap, 1_000), (&dear, 10_000), (&cheap, 1_000)] {
        let (reservation, output) = reserve(process, 300).await.expect("admitted");
        assert_eq!(output, 300);
        assert_eq!(amounts(&cheap).await.1, 21 * nanos + 300 * 10 * nanos, "by the process's own price");
        settle(process, reservation, 20, 100).await;
        expected += 20 * nanos + 100 * 10 * nanos;
        assert_eq!(amounts(&dear).await, (expected, 0));
    }
    let entries = installation.usage.run_usage(&COMPANY.into(), &"run".into()).await.expect("entries");
    let booked: i64 = entries.iter().filter_map(|entry| entry.cost).map(NanoUsd::get).sum();
    let mut dates: Vec<_> = entries.iter().filter_map(|entry| entry.price_as_of.as_deref()).collect();
    dates.sort_unstable();
    assert_eq!((booked, dates), (expected, vec!["2026-01-01", "2026-01-01", "2026-02-02"]));
    assert_eq!(installation.days().await, [("2026-01-01".to_owned(), 360, expected)]);
    // A process without the price refuses where the cost is limited.
    let none = installation.process_at(&installation.clock, "");
    let error = reserve(&none, 300).await.expect_err("no price");
    assert_eq!(error.kind(), AgentErrorKind::PriceUnknown);
}
