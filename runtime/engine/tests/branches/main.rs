//! Jobs with side outputs and several sinks, over a scripted source and tables in memory.

mod histories;
mod scene;
mod shape;
mod table;
mod together;
