// Package flightrecorder reads the dumps of torch's flight recorder: the last collectives that each
// rank has entered. It finds the first collective that not all ranks of a group have entered.
//
// Dumps are pickles, or JSON. The reader of pickles implements only the instructions that torch and
// Python write for plain data: it never imports, calls or makes anything that a file names.
package flightrecorder
