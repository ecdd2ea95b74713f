//! What the lanes of a warp do together.

use super::operands::{Form, Lookup, Slot, UNKNOWN, exactly};
use super::row::{Family, Row, Value};
use crate::arch::Feature;
use crate::types::ScalarType::{B32, Pred, U32};

const fn lanes(name: &'static str, operands: fn(&Form<'_>) -> Lookup) -> Row {
    Row::computing(name, Family::Warp, operands).value(Value::Agreed)
}

#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    lanes("activemask", |_| exactly(vec![Slot::Out(B32)])).tested("tests/ptx/warp/vote.ptx"),
    lanes("elect", |_| exactly(vec![Slot::OutAndPred(B32), Slot::In(U32)])).value(Value::Elected)
        .needs(|_, needs| needs.add(Feature::Elect)).tested("tests/ptx/warp/vote.ptx"),
    lanes("match", match_lanes).tested("tests/ptx/warp/match.ptx"),
    lanes("redux", reduce)
        .needs(|i, needs| needs.add(if i.has("f32") { Feature::ReduxF32 } else { Feature::Redux })).tested("tests/ptx/warp/redux.ptx"),
    lanes("shfl", shuffle).value(Value::Converted).tested("tests/ptx/warp/shfl.ptx"),
    lanes("vote", vote).tested("tests/ptx/warp/vote.ptx"),
];

fn match_lanes(form: &Form<'_>) -> Lookup {
    use Slot::*;
    match form.first() {
        Some(ty) => exactly(vec![OutMaybePred(B32), In(ty), In(U32)]),
        None => UNKNOWN,
    }
}

fn reduce(form: &Form<'_>) -> Lookup {
    use Slot::*;
    match form.first() {
        Some(ty) => exactly(vec![Out(ty), In(ty), In(U32)]),
        None => UNKNOWN,
    }
}

fn shuffle(form: &Form<'_>) -> Lookup {
    use Slot::*;
    match form.first() {
        Some(ty) if form.has("sync") => {
            exactly(vec![OutMaybePred(ty), In(ty), In(B32), In(B32), In(B32)])
        }
        _ => UNKNOWN,
    }
}

fn vote(form: &Form<'_>) -> Lookup {
    use Slot::*;
    let Some(ty) = form.first() else {
        return UNKNOWN;
    };
    let mut slots = vec![if ty == Pred { OutPred } else { Out(ty) }, InPred];
    if form.has("sync") {
        slots.push(In(U32));
    }
    exactly(slots)
}
