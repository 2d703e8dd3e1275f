//! `kvstrata top`: reading a manager's metrics, the view of them, and hostile servers.

mod command;
mod hostile;
mod views;

#[expect(dead_code, reason = "this test uses some of it")]
#[path = "../../../tests/manager/ground.rs"]
mod ground;

use ground::{build, compute, hashes, rest, settings};
use kvstrata::OriginalNames;
use kvstrata::config::TenantSettings;
use kvstrata::manager::KvBlockManager;
use kvstrata::metrics::Metrics;
use kvstrata_cli::top::{Look, View, Watch};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);
const PLAIN: Look = Look { colour: false, ascii: false, keys: false };

/// A manager with three tiers and a tenant, and its metrics before and after some requests.
async fn at_work(listen: Option<SocketAddr>) -> (KvBlockManager, [Metrics; 2]) {
    let acme = TenantSettings { name: "acme".to_owned(), device: Some(0.5), ..TenantSettings::default() };
    let manager =
        build(settings(8, 8).disk_blocks(64).tenants([acme]).metrics_listen(listen).metrics_tenants(8));
    for sequence in 1..=6 {
        drop(compute(&manager, &hashes(sequence, 4), None).await);
        rest(&manager).await;
    }
    let before = manager.metrics();
    for sequence in 1..=3 {
        drop(manager.default_group().restore_to_gpu(&hashes(sequence, 4)).await.expect("it fits"));
        rest(&manager).await;
    }
    let tenant = manager.tenant("acme").expect("a name");
    drop(compute(&tenant, &hashes(9, 2), None).await);
    rest(&manager).await;
    drop(manager.default_group().match_prefix(&hashes(70, 4)));
    let after = manager.metrics();
    (manager, [before, after])
}

/// The same metrics as text, without a runtime.
fn texts() -> &'static [String; 2] {
    static TEXTS: OnceLock<[String; 2]> = OnceLock::new();
    TEXTS.get_or_init(|| {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let (_, metrics) = runtime.block_on(at_work(None));
        metrics.map(|metrics| metrics.to_prometheus())
    })
}

/// A watch that has read both texts, one second apart.
fn watched(texts: &[String; 2]) -> (Watch, Instant) {
    let began = Instant::now();
    let mut watch = Watch::new("worker-3:9400", SECOND, began);
    for (text, at) in texts.iter().zip([began, began + SECOND]) {
        watch.take(text, at..at).expect("a manager's");
    }
    (watch, began + SECOND)
}

fn screen(view: &View, look: Look, columns: u16, rows: u16) -> TestBackend {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).expect("in memory");
    terminal.draw(|frame| view.draw(look, frame)).expect("in memory");
    terminal.backend().clone()
}

/// The rows of a screen as text.
fn rows(screen: &TestBackend) -> Vec<String> {
    let buffer = screen.buffer();
    let row = |cells: &[ratatui::buffer::Cell]| cells.iter().map(|cell| cell.symbol()).collect::<String>();
    buffer
        .content()
        .chunks(usize::from(buffer.area.width))
        .map(|cells| row(cells).trim_end().to_owned())
        .collect()
}
