use super::{output, run};
// book: begin
use heist::builder::{Arch, BuildError, Global, kernel_params};
use heist::launch::Arg;
use heist::sched::{MaxSteals, Tiled, TiledKernel};

kernel_params! {
    /// The edit distance of each pair of words: rows of 128 bytes, of which the lengths say how many count.
    struct Edit { a: Global<u8>, b: Global<u8>, a_len: Global<u32>, b_len: Global<u32>, distance: Global<u32> }
}

const MOST: u32 = 128;

fn edit_distance(pairs: u32, arch: Arch) -> Result<TiledKernel<Edit>, BuildError> {
    Tiled::<Edit>::new("edit_distance", pairs)
        .policy(MaxSteals { limit: 8 })
        .block(MOST)
        .build(arch, |k, args, tiles| {
            let b = k.shared::<u8>("b", MOST);
            // The last cell of each row; two diagonals, written in turn.
            let edge = k.shared::<u32>("edge", 2 * MOST);
            let row = k.thread().x; // a row of the table for each thread
            tiles.each(|pair| {
                let (m, n) = (args.a_len.at(pair.x).load(), args.b_len.at(pair.x).load());
                let letter = args.a.at(pair.x * MOST + row).load().cast::<u32>();
                b.at(row).store(args.b.at(pair.x * MOST + row).load());
                k.sync();
                let (left, corner) = (k.var(row + 1), k.var(row)); // before the first column
                k.for_range(0, m + n, |diagonal| {
                    let column = diagonal - row; // wraps where the wave has not come yet
                    k.if_(row.le(diagonal) & column.lt(n) & row.lt(m), || {
                        let above = k.if_value(
                            row.eq(0),
                            || column + 1,
                            || edge.at((diagonal + 1) % 2 * MOST + row - 1).load(),
                        );
                        let differs = b.at(column).load().cast::<u32>().ne(letter);
                        let change = corner.get() + differs.to_u32();
                        let cell = change.min(above + 1).min(left.get() + 1);
                        corner.set(above);
                        left.set(cell);
                        edge.at(diagonal % 2 * MOST + row).store(cell);
                    });
                    k.sync(); // a diagonal is written before the next one reads it
                });
                k.if_((row + 1).eq(m), || {
                    args.distance.at(pair.x).store(left.get())
                });
                k.if_(m.eq(0) & row.eq(0), || args.distance.at(pair.x).store(n));
            })
        })
}
// book: end

fn on_the_host(a: &[u8], b: &[u8]) -> u32 {
    let mut row: Vec<u32> = (0..=b.len() as u32).collect();
    for (i, x) in a.iter().enumerate() {
        let mut corner = i as u32;
        row[0] = corner + 1;
        for (j, y) in b.iter().enumerate() {
            let change = corner + u32::from(x != y);
            corner = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(corner + 1);
        }
    }
    row[b.len()]
}

#[test]
fn words_are_as_far_apart_as_the_host_says() {
    let lengths = [(0, 5), (40, 40), (7, 0), (3, 50), (1, 1), (33, 12)];
    let mut random = fastrand::Rng::with_seed(7);
    let mut letters = || -> Vec<u8> {
        let count = lengths.len() * MOST as usize;
        (0..count).map(|_| random.u8(b'a'..b'd')).collect()
    };
    let (a, b) = (letters(), letters());
    let (a_len, b_len): (Vec<u32>, Vec<u32>) = lengths.into_iter().unzip();
    let own = Edit {
        a: Arg::input(&a),
        b: Arg::input(&b),
        a_len: Arg::input(&a_len),
        b_len: Arg::input(&b_len),
        distance: Arg::output::<u32>(lengths.len()),
    };
    let run = run(|arch| edit_distance(lengths.len() as u32, arch), own);
    let words = |of: &[u8], pair: usize, length: u32| {
        of[pair * MOST as usize..][..length as usize].to_vec()
    };
    let wanted: Vec<u32> = (0..lengths.len())
        .map(|pair| {
            let (m, n) = lengths[pair];
            on_the_host(&words(&a, pair, m), &words(&b, pair, n))
        })
        .collect();
    assert_eq!(output::<u32>(&run, "distance"), wanted);
}
