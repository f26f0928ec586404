-- Leave notes on the board of the database's clients, and read it; see core/engine/board.c.
-- KEYS[1] the board   ARGV[1] seconds until these notes end   ARGV[2] the most bytes of a board
-- ARGV[3] notes, one a line, or nothing: a word, and a text
-- Reply: the server's time in seconds, then the notes as they lie there, one a line: when it ends, its word, its text.
-- A note replaces the one with its word.  What has no room is left out; what has ended, or is no note, goes.
local now = tonumber(redis.call('time')[1])
local last = now + ARGV[1]
local notes, places, size = {}, {}, 0
local function put(ends, word, text)
    local note = string.format('%d %s %s\n', ends, word, text)
    local place = places[word] or #notes + 1
    local more = #note - #(notes[place] or '')
    if size + more <= tonumber(ARGV[2]) then
        notes[place], places[word], size = note, place, size + more
    end
end

for line in string.gmatch(redis.call('getrange', KEYS[1], 0, ARGV[2] - 1), '[^\n]+') do
    local ends, word, text = string.match(string.sub(line, 1, 1024), '^(%d+) (%S+) (.*)$')
    ends = tonumber(ends)
    if ends and ends > now and ends <= last then
        put(ends, word, text)
    end
end
if ARGV[3] ~= '' then
    for word, text in string.gmatch(ARGV[3], '(%S+) ([^\n]*)\n') do
        put(last, word, text)
    end
    redis.call('set', KEYS[1], table.concat(notes), 'px', ARGV[1] * 1000)
end
return now .. '\n' .. table.concat(notes)
