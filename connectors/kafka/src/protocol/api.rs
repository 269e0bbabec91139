//! The requests that are spoken: in which versions, what for, and how their answers are built.

use std::fmt;

use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, ApiVersionsRequest, DescribeConfigsRequest, DescribeProducersRequest,
    DescribeTransactionsRequest, EndTxnRequest, FindCoordinatorRequest, InitProducerIdRequest,
    ListTransactionsRequest, MetadataRequest, OffsetFetchRequest, TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
};
use kafka_protocol::protocol::Request;

use super::layout::Field::{Array, Fixed, Numbers, Since, Text, Texts, UpTo};
use super::layout::{Field, Layout};

/// Versions of one API, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionSpan {
    /// The oldest.
    pub min: i16,
    /// The newest.
    pub max: i16,
}

impl VersionSpan {
    /// Returns the newest version in both.
    pub(super) fn newest_in_both(self, other: VersionSpan) -> Option<i16> {
        let newest = self.max.min(other.max);
        (newest >= self.min.max(other.min)).then_some(newest)
    }
}

impl fmt::Display for VersionSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.min == self.max {
            write!(f, "version {}", self.min)
        } else {
            write!(f, "versions {} to {}", self.min, self.max)
        }
    }
}

/// A request that this client sends.
pub(super) trait Api: Request {
    /// The name in Kafka's protocol.
    const NAME: &'static str;
    /// What cannot be done without it.
    const NEEDED_FOR: &'static str;
    /// The versions that are spoken here.
    const OURS: VersionSpan;
    /// Whether it changes something. Then it is not sent again on its own when the answer is lost.
    const CHANGES: bool = false;
    /// How its answer is built.
    const LAYOUT: Layout;
    /// The fail point between the request and its answer.
    #[cfg(feature = "failpoints")]
    const SENT: Option<&'static str> = None;
}

const fn flexible_from(flexible_from: i16, fields: &'static [Field]) -> Layout {
    Layout { fields, tags: &[], flexible_from }
}

impl Api for ApiVersionsRequest {
    const NAME: &'static str = "ApiVersions";
    const NEEDED_FOR: &'static str = "talking to a broker at all";
    const OURS: VersionSpan = VersionSpan { min: 0, max: 3 };
    const LAYOUT: Layout = Layout {
        fields: &[Fixed(2), Array(&[Fixed(2), Fixed(2), Fixed(2)]), Since(1, &Fixed(4))],
        tags: &[
            (0, Array(&[Text, Fixed(2), Fixed(2)])),
            (1, Fixed(8)),
            (2, Array(&[Text, Fixed(2), Fixed(2)])),
            (3, Fixed(1)),
        ],
        flexible_from: 3,
    };
}

impl Api for MetadataRequest {
    const NAME: &'static str = "Metadata";
    const NEEDED_FOR: &'static str = "finding brokers, leaders and topic ids";
    // Topic ids come with 10.
    const OURS: VersionSpan = VersionSpan { min: 10, max: 12 };
    const LAYOUT: Layout = flexible_from(
        9,
        &[
            Fixed(4),
            Array(&[Fixed(4), Text, Fixed(4), Text]),
            Text,
            Fixed(4),
            Array(&[
                Fixed(2),
                Text,
                Fixed(16),
                Fixed(1),
                Array(&[Fixed(2), Fixed(4), Fixed(4), Fixed(4), Numbers(4), Numbers(4), Numbers(4)]),
                Fixed(4),
            ]),
            UpTo(10, &Fixed(4)),
        ],
    );
}

impl Api for FindCoordinatorRequest {
    const NAME: &'static str = "FindCoordinator";
    const NEEDED_FOR: &'static str = "finding the broker that decides about a transaction or a group";
    // Several keys in one request come with 4.
    const OURS: VersionSpan = VersionSpan { min: 4, max: 6 };
    const LAYOUT: Layout =
        flexible_from(3, &[Fixed(4), Array(&[Text, Fixed(4), Text, Fixed(4), Fixed(2), Text])]);
}

impl Api for DescribeTransactionsRequest {
    const NAME: &'static str = "DescribeTransactions";
    const NEEDED_FOR: &'static str =
        "telling whether a transaction waits, is committed or aborted (Kafka 3.0)";
    const OURS: VersionSpan = VersionSpan { min: 0, max: 0 };
    const LAYOUT: Layout = flexible_from(
        0,
        &[
            Fixed(4),
            Array(&[
                Fixed(2),
                Text,
                Text,
                Fixed(4),
                Fixed(8),
                Fixed(8),
                Fixed(2),
                Array(&[Text, Numbers(4)]),
            ]),
        ],
    );
}

impl Api for ListTransactionsRequest {
    const NAME: &'static str = "ListTransactions";
    const NEEDED_FOR: &'static str = "finding the transactions that earlier attempts have left (Kafka 3.0)";
    const OURS: VersionSpan = VersionSpan { min: 0, max: 2 };
    const LAYOUT: Layout = flexible_from(0, &[Fixed(4), Fixed(2), Texts, Array(&[Text, Fixed(8), Text])]);
}

impl Api for DescribeProducersRequest {
    const NAME: &'static str = "DescribeProducers";
    const NEEDED_FOR: &'static str = "naming the producer of an open transaction (Kafka 2.8)";
    const OURS: VersionSpan = VersionSpan { min: 0, max: 0 };
    const LAYOUT: Layout = flexible_from(
        0,
        &[
            Fixed(4),
            Array(&[
                Text,
                Array(&[
                    Fixed(4),
                    Fixed(2),
                    Text,
                    Array(&[Fixed(8), Fixed(4), Fixed(4), Fixed(8), Fixed(4), Fixed(8)]),
                ]),
            ]),
        ],
    );
}

impl Api for EndTxnRequest {
    const NAME: &'static str = "EndTxn";
    const NEEDED_FOR: &'static str = "committing and aborting a transaction from another connection";
    // [KSK-09] Never 5: that version ends transactions of another generation of the protocol, raises the epoch, and fences
    // the producer that wrote the transaction.
    const OURS: VersionSpan = VersionSpan { min: 0, max: 4 };
    const CHANGES: bool = true;
    #[cfg(feature = "failpoints")]
    const SENT: Option<&'static str> = Some("kafka::end::sent");
    const LAYOUT: Layout = flexible_from(3, &[Fixed(4), Fixed(2)]);
}

impl Api for AddOffsetsToTxnRequest {
    const NAME: &'static str = "AddOffsetsToTxn";
    const NEEDED_FOR: &'static str = "marking a transaction with its checkpoint";
    // 4 is of another generation of transactions.
    const OURS: VersionSpan = VersionSpan { min: 0, max: 3 };
    const CHANGES: bool = true;
    const LAYOUT: Layout = flexible_from(3, &[Fixed(4), Fixed(2)]);
}

impl Api for TxnOffsetCommitRequest {
    const NAME: &'static str = "TxnOffsetCommit";
    const NEEDED_FOR: &'static str = "marking a transaction with its checkpoint";
    // 5 is of another generation of transactions.
    const OURS: VersionSpan = VersionSpan { min: 3, max: 4 };
    const CHANGES: bool = true;
    const LAYOUT: Layout = flexible_from(3, &[Fixed(4), Array(&[Text, Array(&[Fixed(4), Fixed(2)])])]);
}

impl Api for WriteTxnMarkersRequest {
    const NAME: &'static str = "WriteTxnMarkers";
    const NEEDED_FOR: &'static str = "making a committed transaction visible whose marker was left out";
    const OURS: VersionSpan = VersionSpan { min: 1, max: 1 };
    const CHANGES: bool = true;
    const LAYOUT: Layout =
        flexible_from(1, &[Array(&[Fixed(8), Array(&[Text, Array(&[Fixed(4), Fixed(2)])])])]);
}

impl Api for InitProducerIdRequest {
    const NAME: &'static str = "InitProducerId";
    const NEEDED_FOR: &'static str = "fencing what earlier attempts have left";
    // 6 is not stable in any released broker.
    const OURS: VersionSpan = VersionSpan { min: 3, max: 5 };
    const CHANGES: bool = true;
    #[cfg(feature = "failpoints")]
    const SENT: Option<&'static str> = Some("kafka::fence::sent");
    const LAYOUT: Layout = flexible_from(2, &[Fixed(4), Fixed(2), Fixed(8), Fixed(2)]);
}

impl Api for OffsetFetchRequest {
    const NAME: &'static str = "OffsetFetch";
    const NEEDED_FOR: &'static str = "reading the offsets that a transaction has committed (Kafka 3.0)";
    // Groups in a list come with 8, topic ids instead of names with 10.
    const OURS: VersionSpan = VersionSpan { min: 8, max: 9 };
    const LAYOUT: Layout = flexible_from(
        6,
        &[
            Fixed(4),
            Array(&[Text, Array(&[Text, Array(&[Fixed(4), Fixed(8), Fixed(4), Text, Fixed(2)])]), Fixed(2)]),
        ],
    );
}

impl Api for DescribeConfigsRequest {
    const NAME: &'static str = "DescribeConfigs";
    const NEEDED_FOR: &'static str = "comparing our settings with the brokers' limits";
    const OURS: VersionSpan = VersionSpan { min: 4, max: 4 };
    const LAYOUT: Layout = flexible_from(
        4,
        &[
            Fixed(4),
            Array(&[
                Fixed(2),
                Text,
                Fixed(1),
                Text,
                Array(&[
                    Text,
                    Text,
                    Fixed(1),
                    Fixed(1),
                    Fixed(1),
                    Array(&[Text, Text, Fixed(1)]),
                    Fixed(1),
                    Text,
                ]),
            ]),
        ],
    );
}
