use super::*;
use alloc::vec::Vec;

fn key(number: u64) -> Key {
    Key::some(number)
}

#[test]
fn records_read_back_as_written() {
    let records = [
        Record::Missed(key(1)),
        Record::Used(key(2)),
        Record::Released { first: u32::MAX, blocks: 64, paths: 64 },
        Record::Waits { key: key(3).short(), class: 15, nth: 63 },
        Record::Out { first: 0, blocks: 64 },
        Record::Won(64),
        Record::Evicted(key(4), 0),
        Record::Evicted(key(5), u32::MAX),
    ];
    let journal = Journal::new(2, || 1, WORDS, ());
    let mut page = Page::new();
    for record in records {
        page.add(record);
    }
    journal.write(&mut page);
    let mut heard = Vec::new();
    assert_eq!(
        journal.learn(|(), lanes| lanes.read(|record, _| heard.push(record))),
        Some(Weight::default())
    );
    assert_eq!(heard, records);
}

/// A page is read in two parts: each block belongs to its own batch, and the words behind it wait.
#[test]
fn records_of_a_page_keep_their_batch() {
    let released = |first| Record::Released { first, blocks: 1, paths: 1 };
    let waits = |number| Record::Waits { key: key(number).short(), class: 0, nth: 0 };
    let mut journal = Journal::new(2, || 0, WORDS, ());
    let mut heard = Vec::new();
    let read = |journal: &Journal<()>, heard: &mut Vec<_>| {
        let read = |record, batch| {
            if let Record::Waits { key, .. } = record {
                heard.push((key, batch))
            }
        };
        journal.learn(|(), lanes| lanes.read(read)).expect("nobody else reads")
    };
    let mut page = Page::new();
    page.add(released(100));
    page.add(waits(1));
    journal.write(&mut page);
    // Its second word is not written yet.
    let word = journal.ring.exchange(1, 0);
    read(&journal, &mut heard);
    journal.lane_of = || 1;
    page.add(released(200));
    page.add(waits(2));
    journal.write(&mut page);
    read(&journal, &mut heard);
    assert_eq!(heard, []);
    journal.ring.exchange(1, word);
    read(&journal, &mut heard);
    assert_eq!(heard, [(key(1).short(), 100), (key(2).short(), 200)]);
}

/// One thread uses a block, and another releases it again: read in that order, whichever lanes they have.
#[test]
fn records_of_several_lanes_are_read_in_order() {
    let mut journal = Journal::new(2, || 1, WORDS, ());
    let records =
        [Record::Used(key(1)), Record::Released { first: 7, blocks: 1, paths: 1 }, Record::Used(key(2))];
    for record in records {
        journal.write_one(record);
        journal.lane_of = if (journal.lane_of)() == 1 { || 0 } else { || 1 };
    }
    let mut heard = Vec::new();
    journal.learn(|(), lanes| lanes.read(|record, _| heard.push(record)));
    assert_eq!(heard, records);
}

/// Inactive blocks are counted though their records find no room, on whichever lane they come and go.
#[test]
fn waiting_blocks_without_room_for_records_are_counted() {
    let mut journal = Journal::new(2, || 0, 4, ());
    let waiting = |journal: &Journal<()>| journal.learn(|(), lanes| lanes.waiting());
    let mut page = Page::new();
    page.add(Record::Won(0));
    page.put_first(Record::Released { first: 7, blocks: 60, paths: 1 });
    page.add(Record::Out { first: 7, blocks: 3 });
    journal.write(&mut page);
    assert_eq!(waiting(&journal), Some(57));
    journal.lane_of = || 1;
    (0..10).for_each(|stamp| _ = journal.write_one(Record::Out { first: stamp, blocks: 2 }));
    journal.write_one(Record::Evicted(key(1), 7));
    page.left(6);
    journal.write(&mut page);
    assert_eq!(waiting(&journal), Some(30));
    page.left(31);
    journal.write(&mut page);
    assert_eq!(waiting(&journal), Some(0), "a sum that is torn");
}

#[test]
fn records_without_room_are_counted() {
    let journal = Journal::new(1, || 0, WORDS, ());
    (0..WORDS as u64 + 5).for_each(|number| _ = journal.write_one(Record::Missed(key(number))));
    (0..2).for_each(|number| _ = journal.write_one(Record::Evicted(key(number), 7)));
    let mut heard = 0;
    assert_eq!(
        journal.learn(|(), lanes| lanes.read(|_, _| heard += 1)),
        Some(Weight { blocks: 7, evicted: 2 })
    );
    assert_eq!(heard, WORDS);
    journal.write_one(Record::Won(1));
    assert_eq!(journal.learn(|(), lanes| lanes.read(|_, _| heard += 1)), Some(Weight::default()));
    assert_eq!(heard, WORDS + 1);
}
