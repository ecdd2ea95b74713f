//! Few rows times a large operand whose rows start anywhere, in one launch.

use super::anew::right_behind;
use super::*;

const TYPES: [(Input, Output); 3] = [
    (Input::F16, Output::F32),
    (Input::Bf16, Output::Bf16),
    (Input::Tf32, Output::F32),
];

/// Every layout and type, few rows and few columns, odd sizes; more rows than a tile has, and a depth of several stages whose last one is short.
#[test]
fn few_rows_and_few_columns_of_every_layout() {
    for (turn, &layout) in Layout::ALL.iter().enumerate() {
        for (index, (input, output)) in TYPES.into_iter().enumerate() {
            let few = [1, 3, 8, 9, 17, 31][(turn + index) % 6];
            for (m, n) in [(few, 141), (139, few)] {
                let problem = Gemm::new(m, n, 531, input, output, layout);
                right_behind(problem, "thin", [0, 0], "h200");
            }
        }
    }
}
