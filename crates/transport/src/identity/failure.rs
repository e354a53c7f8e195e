//! Reasons why a TLS handshake came to nothing, and whose certificate is the matter.

use std::io;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

use crate::identity::IdentityMismatch;
use crate::parts::Foreign;
use crate::{Address, DialError};

/// Reason why there is no TLS, or no trust, between the two ends.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// It speaks something else.
    #[error("it does not speak TLS: {0}")]
    NotTls(Foreign),
    /// It hung up.
    #[error("it closed the connection during the TLS handshake: does its port take TLS?")]
    Closed,
    /// The network or the operating system failed.
    #[error("the network failed: {0}")]
    Network(io::Error),
    /// TLS failed, by the doing of either end.
    #[error("{}", describe(.0))]
    Rustls(#[from] Error),
    /// Its certificate is good, but does not prove what it claims.
    #[error("{0}")]
    Identity(#[from] IdentityMismatch),
}

impl TlsError {
    /// Error that a dialler returns to its caller.
    pub fn into_dial_error(self, address: Address) -> DialError {
        let message = self.to_string();
        match self {
            Self::Identity(_) => DialError::Untrusted { address, message },
            Self::Rustls(error) if is_of_trust(&error) => DialError::Untrusted { address, message },
            Self::Network(error) => DialError::Unreachable { address, message: error.to_string() },
            Self::NotTls(_) | Self::Closed | Self::Rustls(_) => {
                DialError::Handshake { address, message }
            }
        }
    }

    /// True when any port on the internet sees this all day.
    pub fn is_noise(&self) -> bool {
        match self {
            Self::NotTls(_) | Self::Closed | Self::Network(_) => true,
            Self::Rustls(error) => !is_of_trust(error),
            Self::Identity(_) => false,
        }
    }
}

/// The error of rustls that a read or write came back with, if it was one.
pub fn rustls_error(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}

/// True when a certificate, of either end, is the reason.
fn is_of_trust(error: &Error) -> bool {
    match error {
        Error::InvalidCertificate(_) | Error::NoCertificatesPresented => true,
        Error::AlertReceived(alert) => is_alert_of_trust(*alert),
        _ => false,
    }
}

fn is_alert_of_trust(alert: AlertDescription) -> bool {
    use AlertDescription as Alert;
    matches!(
        alert,
        Alert::AccessDenied
            | Alert::BadCertificate
            | Alert::CertificateExpired
            | Alert::CertificateRequired
            | Alert::CertificateRevoked
            | Alert::CertificateUnknown
            | Alert::DecryptError
            | Alert::NoCertificate
            | Alert::UnknownCA
            | Alert::UnsupportedCertificate
    )
}

/// For people: whose certificate it is, in words.
fn describe(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(CertificateError::Other(why)) => {
            format!("its certificate is not accepted here: {why}")
        }
        // A bad signature is that of an authority which has the name of a trusted one.
        Error::InvalidCertificate(
            why @ (CertificateError::UnknownIssuer | CertificateError::BadSignature),
        ) => format!(
            "its certificate is not accepted here: {why}, no authority of this node's trusted file \
             has issued it: have one of them do so, or add its authority to that file"
        ),
        Error::InvalidCertificate(why) => format!("its certificate is not accepted here: {why}"),
        Error::NoCertificatesPresented => "it presented no certificate".into(),
        Error::AlertReceived(AlertDescription::UnknownCA) => {
            "it does not accept this node's certificate: UnknownCA, no authority of its trusted file \
             has issued that: have one of them do so, or add the authority to its file"
                .into()
        }
        Error::AlertReceived(alert) if is_alert_of_trust(*alert) => {
            format!("it does not accept this node's certificate: {alert:?}")
        }
        Error::AlertReceived(AlertDescription::ProtocolVersion) => {
            "it takes no TLS 1.3, or no TLS at all: does its port take TLS?".into()
        }
        Error::AlertReceived(AlertDescription::NoApplicationProtocol) => {
            "it speaks another protocol over TLS: is the scheme of its address right?".into()
        }
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "TLS failed: what it sends is no TLS".into()
        }
        Error::NoApplicationProtocol => "it did not agree on the protocol inside TLS (ALPN)".into(),
        Error::AlertReceived(alert) => format!("it ended the TLS handshake: {alert:?}"),
        other => format!("TLS failed: {other}"),
    }
}
