//! Pages: a card's memory is handed out in pages of 2 MiB, and those are charged.
//!
//! The driver gives allocations of more than half a page pages of their own, and puts smaller ones side by side into shared
//! ones. That isn't documented, nor measured on a GPU here: programs see the free memory fall by 2 MiB at a time, and the
//! addresses of small allocations lie 512 bytes apart. Which allocations share a page is therefore not computed from their
//! sizes but read off their addresses: a page is charged with the first allocation that lies in it, and released with the
//! last. If the driver packs more tightly or loosely than said here, the charge follows it.
//!
//! Before the driver is asked, pages for the whole allocation are reserved, as it may not find room beside others. Where that
//! much isn't left, a small one is tried for all the same while a page has room for it, and given back if it came to lie in a
//! new one. Room is what small ones that were never freed have left at the end of their page.
//!
//! Of managed memory and arrays no address tells where they lie on the card: see there.

use crate::lock::Lock;

use super::resources::{Kind, Resource, Resources};

/// Bytes of a page.
const PAGE: u64 = 2 << 20;
/// The largest allocation that shares one.
const SMALL: u64 = PAGE / 2;
/// What addresses are multiples of.
const ALIGNMENT: u64 = 512;

/// Pages of which not all belongs to one allocation, by number: the bytes of it that are allocated, its card and context, and
/// in `of` 1 while small allocations share it of which none was freed.
static PAGES: Resources = Resources::new();
/// Held for a step that looks at a page and changes it.
static STEP: Lock<()> = Lock::new(());

/// How an allocation lies in pages.
#[derive(Debug, PartialEq, Eq)]
struct Extent {
    /// Bytes of pages that it fills.
    whole: u64,
    /// The pages that it begins and ends in, and how much of each it has.
    partial: [(u64, u64); 2],
}

/// The most that so many bytes take of a card.
pub(super) fn most(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX)
}

/// What an array of so many bytes takes: small ones share pages, with whom is not known.
pub(super) fn of_array(bytes: u64) -> u64 {
    if bytes > SMALL { most(bytes) } else { bytes }
}

/// What can be had of so many bytes: whole pages.
pub(super) fn whole(bytes: u64) -> u64 {
    bytes / PAGE * PAGE
}

/// Whether a page of this context may have room for so many bytes.
pub(super) fn have_space(bytes: u64, card: usize, context: usize) -> bool {
    let has_space = |_, page: &Resource| {
        let is_shared = page.of == 1 && page.card == card && page.context == context;
        is_shared && page.bytes.saturating_add(bytes.next_multiple_of(ALIGNMENT)) <= PAGE
    };
    bytes <= SMALL && PAGES.search(Kind::Page, has_space).is_some()
}

/// Enters an allocation; the bytes of pages in which nothing was before. A page that finds no place in the table stays charged
/// until the process ends.
pub(super) fn enter(address: u64, memory: &Resource) -> u64 {
    let Extent { whole, partial } = Extent::new(address, memory.bytes);
    let is_small = u64::from(memory.bytes <= SMALL);
    let _step = STEP.lock();
    partial.iter().filter(|(_, bytes)| *bytes > 0).fold(whole, |taken, (page, bytes)| {
        let known = PAGES.get(Kind::Page, *page);
        let before = known.unwrap_or(Resource { bytes: 0, of: is_small, ..*memory });
        let bytes = before.bytes.saturating_add(bytes.next_multiple_of(ALIGNMENT));
        let _full = PAGES.put(Kind::Page, *page, Resource { bytes, ..before });
        if known.is_some() { taken } else { taken.saturating_add(PAGE) }
    })
}

/// Takes an allocation out; the bytes of pages in which nothing is left.
pub(super) fn leave(address: u64, bytes: u64) -> u64 {
    let Extent { whole, partial } = Extent::new(address, bytes);
    let _step = STEP.lock();
    partial.iter().filter(|(_, bytes)| *bytes > 0).fold(whole, |given, (page, bytes)| {
        match PAGES.take(Kind::Page, *page) {
            Some(known) if known.bytes > bytes.next_multiple_of(ALIGNMENT) => {
                let bytes = known.bytes - bytes.next_multiple_of(ALIGNMENT);
                let _had_a_place = PAGES.put(Kind::Page, *page, Resource { bytes, of: 0, ..known });
                given
            }
            Some(_) => given.saturating_add(PAGE),
            None => given,
        }
    })
}

/// In a child that fork made.
pub(super) fn forget() {
    PAGES.forget();
    drop(STEP.reset());
}

// === impl Extent ===

impl Extent {
    fn new(address: u64, bytes: u64) -> Self {
        let end = address.saturating_add(bytes);
        let first = address / PAGE;
        let last = end / PAGE;
        if first == last {
            return Self { whole: 0, partial: [(first, bytes), (last, 0)] };
        }
        let from_first = (PAGE - address % PAGE) % PAGE;
        let whole = (last - address.div_ceil(PAGE)) * PAGE;
        Self { whole, partial: [(first, from_first), (last, end % PAGE)] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocation_fills_pages_and_shares_its_ends() {
        let extent = |address, bytes| {
            let Extent { whole, partial } = Extent::new(address, bytes);
            (whole / PAGE, partial)
        };
        assert_eq!(extent(PAGE, 1), (0, [(1, 1), (1, 0)]));
        assert_eq!(extent(PAGE, PAGE), (1, [(1, 0), (2, 0)]));
        assert_eq!(extent(PAGE, PAGE + 5), (1, [(1, 0), (2, 5)]));
        assert_eq!(extent(PAGE + 512, PAGE - 512), (0, [(1, PAGE - 512), (2, 0)]));
        assert_eq!(extent(2 * PAGE - 512, PAGE), (0, [(1, 512), (2, PAGE - 512)]));
        assert_eq!(extent(2 * PAGE - 512, 3 * PAGE), (2, [(1, 512), (4, PAGE - 512)]));
        assert_eq!(extent(u64::MAX - 4, 100).0, 0, "addresses end");
    }

    #[test]
    fn a_page_is_charged_from_the_first_to_the_last_in_it() {
        let small = |bytes| Resource { bytes, card: 1, context: 7, of: 0 };
        // Nobody else in this process has these addresses.
        let base = 100 * PAGE;
        assert_eq!(enter(base, &small(1000)), PAGE);
        assert!(
            have_space(SMALL, 1, 7) && !have_space(SMALL + 1, 1, 7) && !have_space(1, 0, 7) && !have_space(1, 1, 8)
        );
        assert_eq!(enter(base + 1024, &small(SMALL)), 0);
        assert!(!have_space(SMALL, 1, 7) && have_space(SMALL - 1024, 1, 7));
        assert_eq!(enter(base + PAGE, &small(5 * PAGE)), 5 * PAGE);
        assert_eq!((leave(base, 1000), leave(base + 1024, SMALL), leave(base + PAGE, 5 * PAGE)), (0, PAGE, 5 * PAGE));
        assert_eq!(leave(base, 1000), 0, "it isn't known");
        assert_eq!((enter(base, &small(1000)), enter(base + 1024, &small(1)), leave(base, 1000)), (PAGE, 0, 0));
        assert!(!have_space(1, 1, 7), "who knows where it would lie");
        assert_eq!(leave(base + 1024, 1), PAGE);
    }
}
