//! What may leave a queue, and when.

use levada_core::async_io::{Held, Left, Order, Place, Queue};

type Names = Queue<&'static str, (), &'static str>;

/// Everything that leaves, by name.
fn leaving(queue: &mut Names) -> Vec<&'static str> {
    let name = |left| match left {
        Left::Result(name, ()) => name,
        Left::Mark(mark) => mark,
    };
    std::iter::from_fn(|| queue.pop()).map(name).collect()
}

fn queue(order: Order, capacity: usize) -> Names {
    Queue::new(order, capacity.try_into().unwrap())
}

/// R1 R2 | W2 | R3 R4 | W5 | R5 R6, and what leaves after each completion of 3, 2, 6, 4, 1, 5.
fn sequence(order: Order, keys: [u64; 6]) -> [Vec<&'static str>; 6] {
    let mut queue = queue(order, 8);
    let names = ["r1", "r2", "r3", "r4", "r5", "r6"];
    let mut places: Vec<Place> = Vec::new();
    for (index, name) in names.into_iter().enumerate() {
        places.push(queue.put(name, keys[index]));
        match index {
            1 => queue.mark("w2"),
            3 => queue.mark("w5"),
            _ => {}
        }
    }
    assert!(queue.is_full());
    [3, 2, 6, 4, 1, 5].map(|number| {
        queue.complete(places[number - 1], ()).unwrap();
        leaving(&mut queue)
    })
}

/// [ASY-03] never across a watermark in either direction.
#[test]
fn unordered_results_leave_as_they_come_between_two_watermarks() {
    let none = Vec::new;
    let seen = sequence(Order::Unordered, [0; 6]);
    let behind_the_first = vec!["r1", "w2", "r3", "r4", "w5", "r6"];
    assert_eq!(seen, [none(), vec!["r2"], none(), none(), behind_the_first, vec!["r5"]]);
}

/// [ASY-02] watermarks in place, whatever completes first.
#[test]
fn ordered_results_leave_in_the_order_of_the_inputs() {
    let none = Vec::new;
    let seen = sequence(Order::Ordered, [0; 6]);
    let behind_the_first = vec!["r1", "r2", "w2", "r3", "r4", "w5"];
    assert_eq!(seen, [none(), none(), none(), none(), behind_the_first, vec!["r5", "r6"]]);
}

/// [ASY-04] [ASY-03] r5 and r6 share a key, so r6 waits for r5; the others are free between two watermarks.
#[test]
fn results_of_one_key_leave_in_order_and_others_are_free() {
    let none = Vec::new;
    let seen = sequence(Order::KeyOrdered, [1, 2, 3, 4, 5, 5]);
    let behind_the_first = vec!["r1", "w2", "r3", "r4", "w5"];
    assert_eq!(seen, [none(), vec!["r2"], none(), none(), behind_the_first, vec!["r5", "r6"]]);
    let of_one_key = sequence(Order::KeyOrdered, [7; 6]);
    assert_eq!(of_one_key, sequence(Order::Ordered, [0; 6]), "one key alone is in order");
}

/// [ASY-03] without watermarks nothing holds anything up.
#[test]
fn without_watermarks_unordered_results_leave_as_they_come() {
    let mut queue = queue(Order::Unordered, 3);
    let places = ["a", "b", "c"].map(|name| queue.put(name, 0));
    for (place, name) in [(places[2], "c"), (places[0], "a"), (places[1], "b")] {
        queue.complete(place, ()).unwrap();
        assert_eq!(leaving(&mut queue), [name]);
    }
}

/// [ASY-01] what is complete and may not leave takes up room, and so does a watermark.
#[test]
fn capacity_counts_results_that_wait_and_watermarks() {
    for order in [Order::Ordered, Order::Unordered, Order::KeyOrdered] {
        let mut queue = queue(order, 3);
        let first = queue.put("first", 1);
        queue.mark("watermark");
        assert!(!queue.is_full());
        let second = queue.put("second", 2);
        assert!(queue.is_full());
        queue.complete(second, ()).unwrap();
        assert!(queue.is_full(), "{order:?}: a result behind the watermark");
        assert_eq!(leaving(&mut queue), [""; 0]);
        queue.complete(first, ()).unwrap();
        assert_eq!(leaving(&mut queue), ["first", "watermark", "second"]);
        assert_eq!((queue.len(), queue.is_empty()), (0, true));
    }
}

/// [ASY-02] [ASY-03] with nothing before it, a watermark leaves at once.
#[test]
fn watermark_alone_leaves_at_once() {
    for order in [Order::Ordered, Order::Unordered, Order::KeyOrdered] {
        let mut queue = queue(order, 4);
        queue.mark("w1");
        queue.mark("w2");
        assert_eq!(leaving(&mut queue), ["w1", "w2"]);
        let only = queue.put("only", 0);
        queue.mark("w3");
        queue.mark("w4");
        assert_eq!(leaving(&mut queue), [""; 0]);
        queue.complete(only, ()).unwrap();
        assert_eq!(leaving(&mut queue), ["only", "w3", "w4"]);
    }
}

/// [ASY-05] the first completion wins; later ones come back, also when the input has left.
#[test]
fn second_result_of_an_input_is_not_taken() {
    let mut queue: Queue<&str, u8, &str> = Queue::new(Order::Ordered, 2.try_into().unwrap());
    let (first, second) = (queue.put("first", 0), queue.put("second", 0));
    assert_eq!(queue.complete(second, 1), Ok(()));
    assert_eq!(queue.complete(second, 2), Err(2));
    assert_eq!(queue.complete(first, 3), Ok(()));
    assert_eq!(queue.pop(), Some(Left::Result("first", 3)));
    assert_eq!(queue.complete(first, 4), Err(4));
    assert_eq!(queue.pop(), Some(Left::Result("second", 1)));
}

/// [ASY-08] done or not, in order, with the watermarks between them.
#[test]
fn checkpoint_sees_everything_that_has_not_left_in_order() {
    for order in [Order::Ordered, Order::Unordered, Order::KeyOrdered] {
        let mut queue = queue(order, 9);
        let places = ["r1", "r2"].map(|name| queue.put(name, 0));
        queue.mark("w");
        let last = queue.put("r3", 0);
        queue.complete(last, ()).unwrap();
        queue.complete(places[0], ()).unwrap();
        assert_eq!(leaving(&mut queue), ["r1"], "{order:?}");
        let held: Vec<_> = queue.iter().collect();
        assert_eq!(held, [Held::Input(&"r2"), Held::Mark(&"w"), Held::Input(&"r3")], "{order:?}");
    }
}
