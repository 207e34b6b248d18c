//! `brambling certs`: the certificates by which the processes of a cluster know each other.

use crate::cluster::fail;
use crate::{OK, Streams};
use brambling::cluster::{CERTIFICATES_LAST, Certificates};
use std::path::PathBuf;

/// A day.
const DAY_S: u64 = 24 * 3_600;

#[derive(clap::Args)]
pub(crate) struct CertsArguments {
    /// The folder that is made; it must not exist, or be empty
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// An address or a name where members run; several: once for each. Otherwise the certificate is good wherever they run
    #[arg(long = "host", value_name = "NAME_OR_IP")]
    hosts: Vec<String>,
}

pub(crate) fn certs(arguments: &CertsArguments, streams: &mut Streams<'_>) -> u8 {
    let CertsArguments { dir, hosts } = arguments;
    if let Err(error) = Certificates::make(dir, hosts, CERTIFICATES_LAST) {
        return fail(streams, &error);
    }
    let days = CERTIFICATES_LAST.as_secs() / DAY_S;
    let dir = dir.display();
    streams.out(format!(
        "certificates for the members of one cluster are in {dir}, good for {days} days\n\
         start each of its processes with --tls {dir}, and give a copy of the folder to machines that do not share it\n\
         whoever has key.pem and the cluster's token can take part\n"
    ));
    OK
}
