//! Whether a split is idle is proven by its leader, not by time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use levada_core::time::{Blocked, IdleTimeout, Question, SplitEvent, SplitState, SplitStatus};
use levada_core::{Source as _, SplitId, Timestamp};
use levada_testcontainers::Kafka;

use super::support::{Reading, Topic};

/// What the engine keeps of each split. Its time is the test's.
struct Watch {
    splits: BTreeMap<SplitId, SplitState>,
    now: Timestamp,
    taken: usize,
}

/// What counts as proof that a split is idle. The product knows one alone.
#[derive(Clone, Copy, PartialEq)]
enum Proof {
    LeaderAsked,
    TimePassed,
}

impl Watch {
    fn new(splits: impl IntoIterator<Item = SplitId>) -> Watch {
        let timeout = IdleTimeout::new(Duration::from_secs(60)).expect("a timeout");
        let state = |split| (split, SplitState::new(0, Some(timeout)));
        Watch { splits: splits.into_iter().map(state).collect(), now: Timestamp(0), taken: 0 }
    }

    /// Takes in what the source has told since.
    fn follow(&mut self, reading: &Reading) {
        for (_, split, event) in &reading.news[self.taken..] {
            self.splits.get_mut(split).expect("a split of ours").on(*event, self.now);
        }
        self.taken = reading.news.len();
    }

    /// Lets more than the timeout pass, and returns what is then to be asked.
    fn questions(&mut self) -> Vec<(SplitId, Question)> {
        self.now = self.now.saturating_add(Duration::from_secs(61));
        let tick = |(split, state): (&SplitId, &mut SplitState)| {
            Some((split.clone(), state.on(SplitEvent::Tick, self.now).ask?))
        };
        self.splits.iter_mut().filter_map(tick).collect()
    }

    fn status(&self, split: &SplitId) -> SplitStatus {
        self.splits[split].status()
    }
}

fn is_answer(event: &SplitEvent) -> bool {
    matches!(event, SplitEvent::Answer { .. } | SplitEvent::NoAnswer { .. })
}

/// Asks the leaders, and waits until each question has its answer or none.
async fn ask(reading: &mut Reading, questions: Vec<(SplitId, Question)>) -> Vec<SplitEvent> {
    let asked = questions.len();
    let before = reading.news.len();
    let answers = move |reading: &Reading| -> Vec<SplitEvent> {
        reading.news[before..].iter().map(|(.., event)| *event).filter(is_answer).collect()
    };
    reading.source.ask(questions).expect("asked");
    reading.until(|reading| answers(reading).len() == asked).await;
    answers(reading)
}

/// Reads one split to its end, lets time pass, and returns what is then known of it.
async fn status_when_time_is_up(topic: &Topic, proof: Proof) -> SplitStatus {
    let split = topic.split(0);
    let mut reading = Reading::open(topic.config()).await;
    reading.until(|reading| !reading.told(&split).is_empty()).await;
    let mut watch = Watch::new([split.clone()]);
    watch.follow(&reading);
    assert_eq!(watch.status(&split), SplitStatus::CaughtUp);
    let questions = watch.questions();
    assert_eq!(questions.len(), 1);
    match proof {
        Proof::LeaderAsked => drop(ask(&mut reading, questions).await),
        Proof::TimePassed => {
            let question = questions[0].1;
            let event = SplitEvent::Answer { question, high_watermark: question.position() };
            reading.news.push((0, split.clone(), event));
        }
    }
    watch.follow(&reading);
    reading.source.close().await;
    watch.status(&split)
}

/// [TIM-05]
#[tokio::test]
async fn a_partition_without_data_is_proven_idle() {
    let topic = Topic::new(1).await;
    assert_eq!(status_when_time_is_up(&topic, Proof::LeaderAsked).await, SplitStatus::Idle);
}

/// [TIM-05] the end past markers and aborted data is the high watermark.
#[tokio::test]
async fn a_partition_that_ends_with_an_aborted_transaction_is_proven_idle() {
    let topic = Topic::new(1).await;
    topic.transaction().write(0, ["a"]).commit();
    topic.transaction().write(0, ["lost"]).abort();
    assert_eq!(status_when_time_is_up(&topic, Proof::LeaderAsked).await, SplitStatus::Idle);
}

/// [TIM-05] [TIM-06] the leader has records that may not be read yet: they will come, and must not be late. Were time alone
/// taken as proof, they would be.
#[tokio::test]
async fn a_partition_behind_an_open_transaction_is_blocked_and_time_alone_would_call_it_idle() {
    let topic = Topic::new(1).await;
    topic.write(0, ["a"]);
    let open = topic.transaction().write(0, ["open", "open"]);
    let behind = Blocked::BehindTransaction { position: 1, high_watermark: 3, transaction: None };
    let proven = status_when_time_is_up(&topic, Proof::LeaderAsked).await;
    assert_eq!(proven, SplitStatus::Blocked(behind));
    assert_eq!(status_when_time_is_up(&topic, Proof::TimePassed).await, SplitStatus::Idle, "counter-test");
    open.commit();
    assert_eq!(status_when_time_is_up(&topic, Proof::LeaderAsked).await, SplitStatus::Idle);
}

/// [TIM-06] behind the answer, and without another question, it is told whose the transaction is: of two that are open, the one in
/// front. That is another word of the reason, and changes nothing else.
#[tokio::test]
async fn the_producer_of_the_transaction_in_front_is_told_behind_the_answer() {
    let topic = Topic::new(1).await;
    topic.write(0, ["a"]);
    let (front, other) = (topic.transaction().write(0, ["open"]), topic.transaction().write(0, ["other"]));
    let split = topic.split(0);
    let mut reading = Reading::open(topic.config()).await;
    reading.until(|reading| !reading.told(&split).is_empty()).await;
    let mut watch = Watch::new([split.clone()]);
    watch.follow(&reading);
    let questions = watch.questions();
    ask(&mut reading, questions).await;
    let is_named = |event: &SplitEvent| matches!(event, SplitEvent::Transaction(_));
    reading.until(|reading| reading.told(&split).iter().any(is_named)).await;
    watch.follow(&reading);
    let transaction = Some(front.told());
    let behind = Blocked::BehindTransaction { position: 1, high_watermark: 3, transaction };
    assert_eq!(watch.status(&split), SplitStatus::Blocked(behind));
    reading.source.close().await;
    front.commit_unseen();
    other.commit();
}

/// [TIM-05] many questions are answered together, each with the end of its own partition.
#[tokio::test]
async fn many_partitions_are_asked_about_at_once() {
    let topic = Topic::new(40).await;
    let mut reading = Reading::open(topic.config()).await;
    let splits: Vec<_> = (0..40).map(|index| topic.split(index)).collect();
    reading.until(|reading| splits.iter().all(|split| !reading.told(split).is_empty())).await;
    let mut watch = Watch::new(splits);
    watch.follow(&reading);
    let questions = watch.questions();
    // Not read before they are asked about: what is answered does not come from the consumer.
    for index in 0..40 {
        topic.write_numbered(index, index as usize, 4);
    }
    reading.source.ask(questions).expect("asked");
    let answers = |reading: &Reading| reading.news.iter().filter(|(.., event)| is_answer(event)).count();
    reading.until(|reading| answers(reading) == 40).await;
    for (_, split, event) in reading.news.iter().filter(|(.., event)| is_answer(event)) {
        let SplitEvent::Answer { question, high_watermark } = event else { panic!("{split}: {event:?}") };
        assert_eq!((question.position(), *high_watermark), (0, u64::from(split.index)));
    }
    reading.source.close().await;
}

/// [TIM-05] [TIM-06] a broker that stands still gives no answer within the deadline, which makes the split blocked and not
/// idle; once it goes on, it answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_stands_still_gives_no_answer_within_the_deadline() {
    let broker = Kafka::start().expect("a broker");
    let topic = Topic::at(broker.bootstrap(), 1, &[]).await;
    topic.write(0, ["a"]);
    let split = topic.split(0);
    let mut reading = Reading::open(topic.config()).await;
    reading.until(|reading| !reading.told(&split).is_empty()).await;
    let mut watch = Watch::new([split.clone()]);
    watch.follow(&reading);

    let questions = watch.questions();
    broker.pause().expect("pause");
    let asked = Instant::now();
    let answers = ask(&mut reading, questions).await;
    assert!(matches!(answers[..], [SplitEvent::NoAnswer { .. }]), "{answers:?}");
    assert!(asked.elapsed() < Question::DEADLINE + Duration::from_secs(2), "{:?}", asked.elapsed());
    watch.follow(&reading);
    assert_eq!(watch.status(&split), SplitStatus::Blocked(Blocked::BrokerAway));

    broker.resume().expect("resume");
    while watch.status(&split) != SplitStatus::Idle {
        let questions = watch.questions();
        ask(&mut reading, questions).await;
        watch.follow(&reading);
    }
    reading.source.close().await;
}

/// [TIM-05] one leader that is away leaves the questions to the others their answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_leader_that_is_away_takes_no_answer_from_the_others() {
    let cluster = Kafka::builder().brokers(3).start().expect("three brokers");
    let topic = Topic::at(cluster.bootstrap(), 3, &[]).await; // one replica each, a leader each
    let splits: Vec<_> = (0..3).map(|index| topic.split(index)).collect();
    let mut reading = Reading::open(topic.config()).await;
    reading.until(|reading| splits.iter().all(|split| !reading.told(split).is_empty())).await;
    let mut watch = Watch::new(splits.clone());
    watch.follow(&reading);
    // The client knows all leaders before one of them goes away.
    let answers = ask(&mut reading, watch.questions()).await;
    assert!(answers.iter().all(|answer| matches!(answer, SplitEvent::Answer { .. })), "{answers:?}");
    // No position has moved, so nothing is asked about an idle split: watch them anew.
    let mut watch = Watch::new(splits.clone());
    watch.taken = 0;
    watch.follow(&reading);
    cluster.broker(3).pause().expect("pause");
    let answers = ask(&mut reading, watch.questions()).await;
    let given = answers.iter().filter(|answer| matches!(answer, SplitEvent::Answer { .. })).count();
    assert_eq!((answers.len(), given), (3, 2), "{answers:?}");
    cluster.broker(3).resume().expect("resume");
    reading.source.close().await;
}
