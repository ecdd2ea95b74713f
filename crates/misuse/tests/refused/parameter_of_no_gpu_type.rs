// A parameter is a number, a pointer or a tensor map.
use heist_builder::*;

kernel_params! { pub struct Args { name: String } }

fn main() {}
