//go:build cgo

package snib

// Closing counts the closes that block a thread in C.
func Closing() int { return len(closers) }

// Watched counts the holds of whose end somebody is to be told.
func (c *Client) Watched() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.watches)
}
