// Package simulate runs the daemons of a whole job in one process, on a
// directory of the user's, and measures what bringing them up takes there: the
// daemons' own code and real records, without services, driver or other nodes.
package simulate
