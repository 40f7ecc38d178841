// Package simulate runs the daemons of a whole job in one process, on a directory of the user's
// choice, and measures what it takes to bring them up there. It uses the daemons' own code and real
// records, but no services, no driver, and no other nodes.
package simulate
