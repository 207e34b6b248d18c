//! `--metrics`: where a process serves what it counts.

use brambling::cluster::{ClusterError, MetricsEndpoint, MetricsListener};

#[derive(clap::Args)]
pub(crate) struct MetricsAt {
    /// Serve metrics for Prometheus there, over HTTP and to whoever reaches it, such as 127.0.0.1:9177; port 0 is any free one
    #[arg(long, value_name = "HOST:PORT")]
    metrics: Option<String>,
}

impl MetricsAt {
    /// Binds the address, if one is given.
    pub(crate) fn bind(&self) -> Result<Option<MetricsListener>, ClusterError> {
        let bind = |text: &String| {
            let at = text.parse().map_err(|_| ClusterError::Address {
                text: text.clone(),
                source: None,
            })?;
            MetricsListener::bind(at)
        };
        self.metrics.as_ref().map(bind).transpose()
    }
}

/// A line that says where metrics are; nothing where there are none.
pub(crate) fn told(endpoint: Option<&MetricsEndpoint>) -> String {
    endpoint.map_or_else(String::new, |it| {
        format!("metrics at http://{}/metrics\n", it.address())
    })
}
