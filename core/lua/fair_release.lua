-- with _fair.lua
-- Release the fair lock, or give up a place in its queue, and grant the lock to the next waiter.
-- ARGV[1] owner   ARGV[2] channel prefix
-- Reply: {1 released, 2 it had a place, 0 neither, negative if a message was refused; the number of the same
-- client's waiter that has the lock now, or 0; its first lease in ms; its token as text; the server's ms}.
-- Other data may have taken the lock's name; the place is given up all the same.
local released = redis.pcall('hdel', KEYS[1], ARGV[1])
local refused = type(released) == 'table' and released
if refused then
    released = 0
end
if released == 0 and leave(ARGV[1]) > 0 then
    released = 2
elseif refused then
    return refused
end
local number, token = false, '0'
if redis.call('exists', KEYS[1]) == 0 then
    -- The lock is released, whatever a grant is refused, and whatever else has the queue's names; the waiter gets the
    -- error when it asks.
    local granted, to, counted = pcall(grant, ARGV[2], client(ARGV[1]))
    if granted then
        number, token = to, counted
    end
end
return { refused_message and -released or released, tonumber(number or 0), FIRST, number and token or '0', now }
